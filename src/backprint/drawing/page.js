/* Built from page/ by "make page"; edit the sources there.

d3-color 3.1.1: Copyright 2010-2026 Mike Bostock
d3-dispatch 3.0.2: Copyright 2010-2026 Mike Bostock
d3-drag 3.0.1: Copyright 2010-2026 Mike Bostock
d3-interpolate 3.0.2: Copyright 2010-2026 Mike Bostock
d3-selection 3.0.1: Copyright 2010-2026 Mike Bostock
d3-timer 3.0.2: Copyright 2010-2026 Mike Bostock
d3-transition 3.0.2: Copyright 2010-2026 Mike Bostock
d3-zoom 3.0.1: Copyright 2010-2026 Mike Bostock

Permission to use, copy, modify, and/or distribute this software for any purpose
with or without fee is hereby granted, provided that the above copyright notice
and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH
REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY AND
FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT,
INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS
OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER
TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF
THIS SOFTWARE.


d3-ease 3.0.2: Copyright 2010-2026 Mike Bostock, Copyright 2001 Robert Penner

All rights reserved.

Redistribution and use in source and binary forms, with or without modification,
are permitted provided that the following conditions are met:

* Redistributions of source code must retain the above copyright notice, this
  list of conditions and the following disclaimer.

* Redistributions in binary form must reproduce the above copyright notice,
  this list of conditions and the following disclaimer in the documentation
  and/or other materials provided with the distribution.

* Neither the name of the author nor the names of contributors may be used to
  endorse or promote products derived from this software without specific prior
  written permission.

THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND
ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE IMPLIED
WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT OWNER OR CONTRIBUTORS BE LIABLE FOR
ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES
(INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES;
LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON
ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT
(INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF THIS
SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.


preact 11.2.0: Copyright (c) 2015-present Jason Miller

The MIT License (MIT)


Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
*/
"use strict";(()=>{var n,t,r,u,i,f,o,e,l,c,a,s,h=Symbol.for("pv"),p={},y=[],v=/^m(i|n|o|s|text|space)$/,w=Array.isArray,d=y.slice,_=Object.assign;function g(n2){n2&&n2.parentNode&&
n2.remove()}function m(r2,u2,i2,f3,o3){var e2={type:r2,props:u2,key:i2,ref:f3,__k:null,__:null,__b:0,__e:null,__c:null,constructor:h,__v:o3||++t,__i:-1,__u:0};return!o3&&n.
vnode&&n.vnode(e2),e2}function M(){return{current:null}}function $(n2){return n2.children}function x(n2,t4){this.props=n2,this.context=t4,this.__g=0}function S(n2,t4){
if(t4==null)return n2.__&&S(n2.__,n2.__i+1);for(var r2;t4<n2.__k.length;t4++)if((r2=n2.__k[t4])&&r2.__e)return r2.__e;return typeof n2.type!="function"||n2.props.
__P?null:S(n2)}function C(t4){var r2,u2=t4.__v,i2=u2.__e,f3=[],o3=[],e2=t4.__P;e2&&((r2=_({constructor:h},u2)).__v=u2.__v+1,n.vnode&&n.vnode(r2),z(e2,r2,u2,t4.__n,
e2.namespaceURI,32&u2.__u?[i2]:null,f3,i2||S(u2),32&u2.__u,o3),r2.__v=u2.__v,r2.__.__k[r2.__i]=r2,E(f3,r2,o3),u2.__=u2.__e=null,r2.__e!=i2&&j(r2))}function j(n2){
if((n2=n2.__)&&n2.__c&&!n2.props.__P)return n2.__e=null,n2.__k.some(function(t4){return t4&&(n2.__e=t4.__e)}),j(n2)}function L(t4){(8&t4.__g||(t4.__g|=8,u.push(
t4),f++))&&i==n.debounceRendering||((i=n.debounceRendering)||queueMicrotask)(H)}function H(){try{for(var n2,t4=1;u.length;)u.length>t4&&u.sort(o),n2=u.shift(),t4=
u.length,8&n2.__g&&C(n2)}finally{(f=u.length)&&(i||queueMicrotask)(H)}}function I(n2,t4,r2,u2,i2,f3,o3,e2,l2,c2,a3){var s2,h2,v2,w2,d2,_2,g2=u2.__k||y,k=t4.length;
for(l2=q(r2,t4,g2,l2,k),s2=0;s2<k;s2++)(v2=r2.__k[s2])!=null&&(h2=~v2.__i&&g2[v2.__i]||p,v2.__i=s2,_2=z(n2,v2,h2,i2,f3,o3,e2,l2,c2,a3),w2=v2.__e,(h2.ref!=v2.ref||
8&h2.__u)&&(h2.ref&&G(h2.ref,null,v2,h2),v2.ref&&a3.push(v2.ref,v2.__c||w2,v2)),d2=d2||w2,4&v2.__u?(l2=A(v2,l2,n2,!h2.__v),h2.__e&&(h2.__e=null)):typeof v2.type==
"function"&&_2!==void 0?l2=_2:w2&&(l2=w2.nextSibling),v2.__u&=-21);return r2.__e=d2,l2}function q(n2,t4,r2,u2,i2){var f3,o3,e2,l2,c2,a3,s2,p2,y2,v2=r2.length,d2=v2,
_2=0,g2=0,k=n2.__k=Array(i2);for(f3=0;f3<i2;f3++)(o3=t4[f3])!=null&&typeof o3!="boolean"&&typeof o3!="function"?(typeof o3!="object"||o3.constructor===String?o3=
k[f3]=m(null,o3):w(o3)?o3=k[f3]=m($,{children:o3}):o3.constructor===h&&o3.__b?o3=k[f3]=m(o3.type,o3.props,o3.key,o3.ref,o3.__v):k[f3]=o3,l2=f3+_2,o3.__=n2,o3.__b=
n2.__b+1,e2=null,~(c2=o3.__i=P(o3,r2,l2,d2))&&(d2--,(e2=r2[c2])&&(e2.__u|=2)),e2&&e2.__v?(o3.__u|=16,c2==l2-1?_2--:c2==l2+1?_2++:c2!=l2&&(c2>l2?_2--:_2++,g2=1)):
(~c2||(i2>v2?_2--:i2<v2&&_2++),typeof o3.type!="function"&&(o3.__u|=4))):k[f3]=null;if(g2){for(a3=[],s2=[],f3=0;f3<i2;f3++)if((o3=k[f3])&&16&o3.__u){for(_2=0,p2=
a3.length;_2<p2;)a3[y2=_2+p2>>1]<o3.__i?_2=y2+1:p2=y2;a3[_2]=o3.__i,s2[f3]=_2+1}for(_2=a3.length;f3--;)s2[f3]&&(s2[f3]==_2?_2--:k[f3].__u|=4)}if(d2)for(f3=0;f3<
v2;f3++)!(e2=r2[f3])||2&e2.__u||(e2.__e==u2&&(u2=S(e2)),J(e2,e2));return u2}function A(n2,t4,r2,u2){var i2,f3,o3,e2;if(typeof n2.type=="function"){if(n2.props.__P)
return t4;if(i2=n2.__k)for(f3=0;f3<i2.length;f3++)i2[f3]&&(i2[f3].__=n2,t4=A(i2[f3],t4,r2,!1));return t4}for(t4&&!t4.parentNode&&(t4=S(n2))&&!t4.parentNode&&(t4=
null),o3=n2.__e,e2=t4;e2&&e2.nodeType==8;)e2=e2.nextSibling;for(o3!=e2&&(!u2&&r2.moveBefore&&o3.parentNode?r2.moveBefore(o3,t4):r2.insertBefore(o3,t4||null)),t4=
o3;(t4=t4&&t4.nextSibling)&&t4.nodeType==8&&!t4.data.startsWith("$s"););return t4}function P(n2,t4,r2,u2){var i2,f3=n2.key,o3=n2.type,e2=t4[r2],l2=e2&&!(2&e2.__u);if(e2===null&&f3==null||l2&&f3==e2.key&&o3==e2.type)return r2;if(u2>(l2?1:0)){for(i2=
r2-1;i2>=0;i2--)if((e2=t4[i2])&&!(2&e2.__u)&&f3==e2.key&&o3==e2.type)return i2;for(i2=r2+1;i2<t4.length;i2++)if((e2=t4[i2])&&!(2&e2.__u)&&f3==e2.key&&o3==e2.type)
return i2}return-1}function T(n2,t4,r2){r2==null&&(r2=""),t4[0]=="-"?n2.setProperty(t4,r2):n2[t4]=r2}function N(n2,t4,r2,u2,i2){var f3,o3;if(t4=="style")if(typeof r2==
"string")n2.style.cssText=r2;else{if(typeof u2=="string"&&(n2.style.cssText=u2=""),u2)for(t4 in u2)r2&&t4 in r2||T(n2.style,t4);if(r2)for(t4 in r2)u2&&r2[t4]==u2[t4]||
T(n2.style,t4,r2[t4])}else if(t4[0]=="o"&&t4[1]=="n")typeof r2!="function"&&(r2=null),typeof u2!="function"&&(u2=null),(n2.__e||(n2.__e={}))[t4]=r2,r2&&u2||(o3=
a[t4]||(a[t4]=V(t4)),(n2.__a||(n2.__a={}))[t4]=c,f3=t4!=(t4=t4.replace(l,"$1")),(t4=t4.slice(2))[0]<"a"&&(t4=t4.toLowerCase()),r2?n2.addEventListener(t4,o3,f3):
n2.removeEventListener(t4,o3,f3));else{if(i2=="http://www.w3.org/2000/svg")t4=t4.replace(/xlink(H|:h)/,"h").replace(/sName$/,"s");else if(t4!="width"&&t4!="heig\
ht"&&t4!="href"&&t4!="list"&&t4!="form"&&t4!="tabIndex"&&t4!="download"&&t4!="rowSpan"&&t4!="colSpan"&&t4!="role"&&t4!="popover"&&t4 in n2)try{return void(n2[t4]=
r2??"")}catch{}if(typeof r2=="function")return;r2==null||r2===!1&&t4[4]!="-"?n2.removeAttribute(t4):n2.setAttribute(t4,t4=="popover"&&r2==1?"":r2)}}function V(t4){
return function(r2){var u2=this.__e;if(u2){if(u2=u2[t4],r2[e]==null)r2[e]=c++;else if(r2[e]<this.__a[t4])return;return u2(n.event?n.event(r2):r2)}}}function z(t4,r2,u2,i2,f3,o3,e2,l2,c2,a3){
var s2,p2,v2,d2,k,b,m2,M2,C3,j2,L2,H2,q2,A3,O,P2,T2,N2,V2=r2.type;if(r2.constructor!==h)return null;128&u2.__u&&(c2=32&u2.__u,s2=u2.__c.__z)&&(r2.__u|=c2,p2=o3=
[],s2.nodeType==8?l2=B(s2,o3):o3.push(s2),l2=o3[0]||l2),(s2=n.__b)&&s2(r2);n:if(typeof V2=="function"){v2=e2.length;try{if(M2=r2.props,C3=(s2=V2.prototype)&&s2.
render,j2=(s2=V2.contextType)&&i2[s2.__c],L2=s2?j2?j2.props.value:s2.__:i2,(d2=u2.__c)?(r2.__c=d2,2&d2.__g&&(d2.__g|=1)):(C3?r2.__c=d2=new V2(M2,L2):(r2.__c=d2=
new x(M2,L2),d2.constructor=V2,d2.render=K),j2&&j2.sub(d2),d2.state||(d2.state={}),d2.__n=i2,d2.__g|=8,d2.__h=[],d2.__k=[]),C3&&(d2.__s||(d2.__s=d2.state),V2.getDerivedStateFromProps&&
(d2.__s==d2.state&&(d2.__s=_({},d2.__s)),_(d2.__s,V2.getDerivedStateFromProps(M2,d2.__s)))),k=d2.props,b=d2.state,d2.__v=r2,u2.__c){if(M2!==k&&C3&&!V2.getDerivedStateFromProps&&
d2.componentWillReceiveProps&&d2.componentWillReceiveProps(M2,L2),r2.__v==u2.__v&&!(8&d2.__g)||!(4&d2.__g)&&d2.shouldComponentUpdate&&d2.shouldComponentUpdate(M2,
d2.__s,L2)===!1){r2.__v!=u2.__v&&(d2.props=M2,d2.state=d2.__s,d2.__g&=-9),r2.__e=u2.__e,r2.__k=u2.__k,r2.__k.some(function(n2){n2&&(n2.__=r2)}),y.push.apply(d2.
__h,d2.__k),d2.__k=[],d2.__h.length&&e2.push(d2),l2=S(u2);break n}d2.componentWillUpdate&&d2.componentWillUpdate(M2,d2.__s,L2),C3&&d2.componentDidUpdate&&d2.__h.
push(function(){d2.componentDidUpdate(k,b,m2)})}else C3&&!V2.getDerivedStateFromProps&&d2.componentWillMount&&d2.componentWillMount(),C3&&d2.componentDidMount&&
d2.__h.push(d2.componentDidMount);d2.context=L2,d2.props=M2,d2.__P=t4,d2.__g&=-5,H2=n.__r,q2=C3?25:0;do d2.__g&=-9,H2&&H2(r2),s2=d2.render(d2.props,d2.state=d2.
__s,d2.context);while(8&d2.__g&&++q2<25);C3&&(y.push.apply(d2.__h,d2.__k),d2.__k=[]),d2.state=d2.__s,d2.getChildContext&&(i2=_({},i2,d2.getChildContext())),C3&&
u2.__c&&d2.getSnapshotBeforeUpdate&&(m2=d2.getSnapshotBeforeUpdate(k,b)),A3=s2&&s2.type===$&&s2.key==null?s2.props.children:s2,M2.__P&&(s2=l2,f3=(t4=M2.__P).namespaceURI,
c2=o3=null,u2.props&&u2.props.__P!=t4&&(u2.__k.some(function(n2){n2&&J(n2,n2)}),u2.__k=null),l2=u2.__k?S(u2,0):null),l2=I(t4,w(A3)?A3:[A3],r2,u2,i2,f3,o3,e2,l2,
c2,a3),M2.__P&&(r2.__e=null,l2=s2),r2.__u&=-161,p2&&p2.some(g),d2.__h.length&&e2.push(d2),1&d2.__g&&(d2.__g&=-4)}catch(t5){if(e2.length=v2,r2.__v=null,c2||o3)if(t5&&
t5.then){if(r2.__u|=128|c2,o3){for(~(T2=o3.indexOf(l2||void 0))||(T2=o3.length);(N2=o3[T2-1])&&N2.nodeType==8;)T2--;for(;T2<o3.length;T2++)if(N2=o3[T2])if(o3[T2]=
null,O){if(N2==P2)break}else{if(N2.nodeType!=8)break;N2.data.startsWith("$s")&&(P2=B(O=N2))}}if(!O){for(;l2&&l2.nodeType==8&&l2.nextSibling;)l2=l2.nextSibling;O=
l2}(s2=B(O=r2.__c.__z||(r2.__c.__z=O)))?(r2.__e=O,l2=s2):r2.__e=l2,l2=l2&&l2.nextSibling}else o3&&o3.some(g);else r2.__e=u2.__e;r2.__k||(r2.__k=u2.__k||[]),t5&&
t5.then||D(r2),n.__e(t5,r2,u2)}}else l2=r2.__e=F(u2.__e,r2,u2,i2,f3,o3,e2,c2,a3,t4);return(s2=n.diffed)&&s2(r2),l2}function B(n2,t4){if(n2&&n2.nodeType==8&&n2.data.
startsWith("$s"))for(var r2=1;n2=n2.nextSibling;){if(n2.nodeType==8){if(n2.data.startsWith("$s"))r2++;else if(n2.data.startsWith("/$s")&&!--r2)return n2}t4&&t4.
push(n2)}}function D(n2){n2&&(n2.__c&&(n2.__c.__g|=4),n2.__k&&n2.__k.some(D))}function E(t4,r2,u2){for(var i2=0;i2<u2.length;)G(u2[i2++],u2[i2++],u2[i2++]);n.__c&&
n.__c(r2,t4),t4.some(function(r3){try{t4=r3.__h,r3.__h=[],t4.some(function(n2){n2.call(r3)})}catch(t5){n.__e(t5,r3.__v)}})}function F(t4,r2,u2,i2,f3,o3,e2,l2,c2,a3){
var s2,h2,y2,_2,k,b,m2,M2,$2=u2.props||p,x2=r2.props,C3=r2.type;if(C3=="svg"?f3="http://www.w3.org/2000/svg":C3=="math"?f3="http://www.w3.org/1998/Math/MathML":
f3||(f3="http://www.w3.org/1999/xhtml"),o3){for(s2=0;s2<o3.length;s2++)if((k=o3[s2])&&(C3?k.localName==C3:k.nodeType==3)){t4=k,o3[s2]=null;break}}if(!t4){if(M2=
a3.ownerDocument||document,!C3)return M2.createTextNode(x2);t4=M2.createElementNS(f3,C3,x2.is?x2:a3),l2&&(n.__m&&n.__m(r2,o3),l2=!1),o3=null}if(C3){if(a3=C3=="t\
emplate"&&t4.content||t4,o3=C3=="textarea"&&x2.defaultValue!=null?null:o3&&d.call(a3.childNodes),!l2&&o3)for($2={},s2=0;s2<t4.attributes.length;s2++)$2[(k=t4.attributes[s2]).
name]=k.value;for(s2 in $2)k=$2[s2],s2=="dangerouslySetInnerHTML"?y2=k:s2=="children"||s2 in x2||s2=="value"&&"defaultValue"in x2||s2=="checked"&&"defaultChecke\
d"in x2||N(t4,s2,null,k,f3);for(s2 in x2)k=x2[s2],s2=="children"?_2=k:s2=="dangerouslySetInnerHTML"?h2=k:s2=="value"?b=k:s2=="checked"?m2=k:l2&&typeof k!="funct\
ion"||$2[s2]===k||N(t4,s2,k,$2[s2],f3);h2?(l2||y2&&(h2.__html==y2.__html||h2.__html==t4.innerHTML)||(t4.innerHTML=h2.__html),r2.__k=[]):(y2&&(t4.textContent=""),
(C3=="foreignObject"||f3=="http://www.w3.org/1998/Math/MathML"&&v.test(C3))&&(f3="http://www.w3.org/1999/xhtml"),I(a3,w(_2)?_2:[_2],r2,u2,i2,f3,o3,e2,o3?o3[0]:u2.
__k&&S(u2,0),l2,c2),o3&&o3.some(g)),l2&&C3!="textarea"||(s2="value",C3=="progress"&&b==null?t4.removeAttribute(s2):b==null||b===t4[s2]&&(C3!="progress"||b)||N(t4,
s2,b,$2[s2],f3),s2="checked",m2!=null&&m2!=t4[s2]&&N(t4,s2,m2,$2[s2],f3))}else $2===x2||l2&&t4.data==x2||(t4.data=x2);return t4}function G(t4,r2,u2,i2){try{typeof t4==
"function"?r2?r2.__x=t4(r2)||1:i2&&(i2=i2.__c||i2.__e)&&(r2=i2.__x)&&(i2.__x=null,typeof r2=="function"?r2():t4(null)):t4.current=r2}catch(t5){n.__e(t5,u2)}}function J(t4,r2,u2){
var i2,f3,o3,e2;if(n.unmount&&n.unmount(t4),!(i2=t4.ref)||i2.current&&i2.current!=t4.__e||G(i2,null,r2,t4),i2=t4.__c){if(i2.componentWillUnmount)try{i2.componentWillUnmount()}catch(t5){
n.__e(t5,r2)}i2.__P=i2.__n=null}if(i2=t4.__k)for(e2=0;e2<i2.length;e2++)i2[e2]&&J(i2[e2],r2,typeof t4.type!="function"||u2&&!t4.props.__P);!u2&&(i2=t4.__c)&&(i2=
i2.__z)&&(f3=B(i2,o3=[]))&&(i2==t4.__e&&o3.some(g),g(f3),g(i2)),u2||g(t4.__e),t4.__e=t4.__c=t4.__=null}function K(n2,t4,r2){return this.constructor(n2,r2)}function Q(t4,r2){
var u2,i2,f3,o3;n.__&&n.__(t4,r2),r2.nodeType==9&&(r2=r2.documentElement),i2=(u2=t4&&32&t4.__u)?null:r2.__k,r2.__k=m($,{children:[t4]}),f3=[],o3=[],z(r2,r2.__k,
i2||p,p,r2.namespaceURI,i2?null:r2.firstChild?d.call(r2.childNodes):null,f3,i2?i2.__e:r2.firstChild,u2,o3),E(f3,r2.__k,o3),r2.__k.props.children=null}n={__e:function(n2,t4,r2,u2){for(var i2,o3,e2;t4=t4.__;)if((i2=t4.__c)&&!(1&i2.__g)){i2.__g|=4;try{if((e2=(o3=i2.constructor)&&o3.getDerivedStateFromError)&&i2.
setState(o3.getDerivedStateFromError(n2)),i2.componentDidCatch&&(i2.componentDidCatch(n2,u2||{}),e2=1),e2&&8&i2.__g)return void(i2.__g|=2)}catch(t5){n2=t5}}throw f=
0,n2}},t=0,r=function(n2){return n2!=null&&n2.constructor===h},x.prototype.setState=function(n2,t4){var r2=this.__s;r2&&r2!=this.state||(r2=this.__s=_({},this.state)),
typeof n2=="function"&&(n2=n2(_({},r2),this.props)),n2&&(_(r2,n2),this.__v&&(t4&&this.__k.push(t4),L(this)))},x.prototype.forceUpdate=function(n2){this.__v&&(this.
__g|=4,n2&&this.__h.push(n2),L(this))},x.prototype.render=$,u=[],f=0,o=function(n2,t4){return n2.__v.__b-t4.__v.__b},e=Symbol(),l=/(PointerCapture)$|Capture$/i,
c=0,a={},s=0;var f2=Symbol.for("pv"),o2=0;function a2(t4,e2,n2,u2,a3,i2){e2||(e2={});var c2,l2,p2=e2;if("ref"in p2&&typeof t4!="function")for(l2 in p2={},e2)l2=="ref"?c2=e2[l2]:p2[l2]=e2[l2];var s2={type:t4,
props:p2,key:n2,ref:c2,__k:null,__:null,__b:0,__e:null,__c:null,constructor:f2,__v:--o2,__i:-1,__u:0};return(a3||i2)&&(s2.__source=a3,s2.__self=i2),n.vnode&&n.vnode(
s2),s2}var HIGH=18,Code=class extends x{state={from:0,count:60};box=M();watcher=new ResizeObserver(()=>this.scrolled());componentDidMount(){this.watcher.observe(this.box.
current),this.follow()}componentWillUnmount(){this.watcher.disconnect()}componentDidUpdate(before){(before.selected!==this.props.selected||before.model!==this.props.
model)&&this.follow()}target(){let{model,selected}=this.props;return selected===null||selected>=0?selected:model.inside(-selected-1).next().value??null}follow(){
let node=this.target(),box=this.box.current;if(node!==null){let y2=this.props.model.lineOfCode(node)*HIGH;(y2<box.scrollTop+HIGH||y2>box.scrollTop+box.clientHeight-
2*HIGH)&&(box.scrollTop=y2-box.clientHeight/2)}this.scrolled()}scrolled=()=>{let box=this.box.current,from=Math.max(0,Math.floor(box.scrollTop/HIGH)-10),count=Math.
ceil(box.clientHeight/HIGH)+20;(from!==this.state.from||count!==this.state.count)&&this.setState({from,count})};step(node){let{model}=this.props,{op,args,inputs,
spec}=model.data.nodes,parts=[];return model.text(args[node]).split(/\{(\d+)\}/).forEach((part,at)=>{at%2===0?parts.push(part):Number(part)<inputs[node].length?
parts.push(a2("span",{class:"value",children:a2("bdi",{children:model.nameOf(inputs[node][Number(part)])})})):parts.push(`{${part}}`)}),[a2("b",{class:model.isForward(
node)?"forward":"backward",children:a2("bdi",{children:model.nameOf(node)})}),": ",a2("i",{children:['"',model.text(spec[node]),'"']})," = ",a2("span",{class:"o\
p",children:model.text(op[node])}),"(",...parts,")"]}render({model,selected,lit,go}){let lines=model.code(),{from,count}=this.state,indent="    ";return a2("div",
{class:"code",ref:this.box,tabIndex:0,onScroll:this.scrolled,"data-lines":lines.length,children:a2("div",{class:"sheet",style:{height:`${lines.length*HIGH}px`},
children:lines.slice(from,from+count).map((line,at)=>{let chosen=line.node>=0&&line.node===selected,other=line.node>=0&&lit?.has(line.node);return a2("div",{class:`\
row${chosen?" chosen":other?" lit":""}${line.text===null?"":line.node>=0?" note":""}`,style:{top:`${(from+at)*HIGH}px`},onClick:line.node>=0?()=>go(line.node):void 0,
children:[a2("span",{class:"no",children:from+at+1}),line.text===null?[indent,indent,this.step(line.node)]:line.node>=0?indent+indent+line.text:line.text]},from+
at)})})})}};var UNITS=["B","KiB","MiB","GiB","TiB","PiB"];function bytes(count){let power=0;for(;count>=999.5&&power<UNITS.length-1;)[count,power]=[count/1024,power+1];return`${digits(
count,power===0)} ${UNITS[power]}`}var THOUSANDS=["","k","M","G","T","P","E"];function flops(count){let power=0;for(;count>=999.5&&power<THOUSANDS.length-1;)[count,
power]=[count/1e3,power+1];return`${digits(count,power===0)} ${THOUSANDS[power]}`.trim()}function digits(count,whole2){return whole2?String(Math.round(count)):count>=
99.95?count.toFixed(0):count>=9.995?count.toFixed(1):count.toFixed(2)}function whole(count){return count.toLocaleString("en-US")}function real(value){if(value===
null)return"–";if(value===0||Number.isInteger(value)&&Math.abs(value)<1e6)return whole(value);let size=Math.abs(value);return size>=.001&&size<1e5?String(Number(
value.toPrecision(4))):value.toExponential(2)}function plural(count,word){return`${whole(count)} ${word}${count===1?"":"s"}`}function short(op){let parts=op.split(
".");return parts.length>=3?parts[parts.length-2]:parts[parts.length-1]}function fit(text2,letters){if(text2.length<=letters)return text2;let head=Math.ceil((letters-
1)*.55);return`${text2.slice(0,head)}…${text2.slice(text2.length-(letters-1-head))}`}var HIDDEN=/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]/gu;
function clean(text2){return text2.replace(HIDDEN,letter=>`\\u${letter.charCodeAt(0).toString(16).padStart(4,"0")}`)}var OPERATORS=[["attention",/^_?(scaled_dot_product|flash_attention|efficient_attention|flex_attention)/],
["convolution",/^(_?conv|convolution|cudnn_conv|mkldnn_conv|slow_conv|thnn_conv)/],["matmul",/^_?(mm|addmm|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|matmul|linear|scaled_mm|int_mm|grouped_mm|weight_int\w*)(_\w+)?$/],
["norm",/(layer|batch|group|rms|instance)_norm|^_?(weight_norm|native_\w*norm)|cudnn_batch_norm/],["softmax",/softmax/],["embedding",/embedding|^gather|^scatter|index|^take/],
["pool",/pool|upsample|interpolate|grid_sample/],["random",/dropout|^(rand|bernoulli|normal|uniform|multinomial|philox)/],["reduction",/^(sum|mean|var|std|amax|amin|max|min|argmax|argmin|any|all|prod|logsumexp|norm|linalg_vector_norm|cum\w+|nll_loss\w*|mse_loss\w*)(_|$)/],
["creation",/^(full|zeros|ones|empty|arange|new_|scalar_tensor|eye|tril|triu|linspace)/],["copy",/^(clone|_to_copy|copy|contiguous|cat|stack|constant_pad|roll|flip|sort|topk)/]];
function kindOf(name,view,guard){return guard?"guard":view?"view":OPERATORS.find(([,pattern])=>pattern.test(name))?.[0]??"pointwise"}var VIEW=1,GUARD=2,SAVED=4,DataError=class extends Error{constructor(where,what){super();this.where=where;this.what=what}where;what;get message(){return`${this.
where}: ${this.what}`}},KINDS=["program","module","loop","turn","line","steps"];function fail(where,what){throw new DataError(where,what)}function need(right,where,what){
right||fail(where,what)}function said(value){let text2=JSON.stringify(value)??"nothing";return text2.length>60?`${text2.slice(0,60)}…`:text2}function object(value,where){
return need(typeof value=="object"&&value!==null&&!Array.isArray(value),where,`an object was expected, found ${said(value)}`),value}function list(value,where){return need(
Array.isArray(value),where,`a list was expected, found ${said(value)}`),value}function text(value,where){need(typeof value=="string",where,`a text was expected,\
 found ${said(value)}`)}function within(value,low,high,where){Number.isSafeInteger(value)&&value>=low&&value<high||fail(where,`${said(value)} is not a whole num\
ber from ${low} to ${high===1/0?"2**53 - 1":high-1}`)}function amount(value,where){typeof value=="number"&&Number.isFinite(value)&&value>=0||fail(where,`${said(
value)} is not a number of 0 or more`)}function each(value,where,check){let found=list(value,where),at=0;try{for(;at<found.length;at++)check(found[at],"",at)}catch(error){
throw error instanceof DataError&&(error.where=`${where}[${at}]${error.where}`),error}}function row(value,where,checks){let found=list(value,where);need(found.length===
checks.length,where,`${checks.length} entries were expected, found ${found.length}`),each(found,where,(one2,here,at)=>checks[at](one2,here))}var range=(low,high)=>(value,where)=>within(
value,low,high,where);function checkColumns(pair,where){let columns=object(pair.nodes,`${where}.nodes`),count=list(columns.name,`${where}.nodes.name`).length,[word,
bytes2]=[range(0,pair.strings.length),range(0,1/0)],checks={name:word,op:word,args:word,spec:word,echo:word,source:range(-1,pair.sources.length),frame:range(0,pair.
frames.length),product:amount,other:amount,read:bytes2,written:bytes2,memory:bytes2,flags:range(0,8),inputs:(one2,at)=>each(one2,at,range(0,count+pair.ports.length)),
partners:(one2,at)=>each(one2,at,range(0,pair.forward))};for(let[name,check]of Object.entries(checks)){let column=list(columns[name],`${where}.nodes.${name}`);need(
column.length===count,`${where}.nodes.${name}`,`${count} entries were expected, one a step, found ${column.length}`),each(column,`${where}.nodes.${name}`,check)}
within(pair.forward,0,count+1,`${where}.forward`)}function checkPorts(pair,where){let count=pair.nodes.name.length,word=range(0,pair.strings.length),entering=pair.
ports.filter(port=>port.into).length;each(pair.ports,`${where}.ports`,(one2,at)=>{let port=object(one2,at);within(port.side,0,2,`${at}.side`),need(typeof port.into==
"boolean",`${at}.into`,`true or false was expected, found ${said(port.into)}`),text(port.role,`${at}.role`),word(port.name,`${at}.name`),word(port.spec,`${at}.s\
pec`),amount(port.bytes,`${at}.bytes`),within(port.value,port.into?count:-1,count+entering,`${at}.value`)});let next=count;pair.ports.forEach((port,at)=>{port.into&&
need(port.value===next++,`${where}.ports[${at}].value`,`${next-1} was expected, found ${port.value}`)});let values=range(0,count+entering);each(pair.nodes.inputs,
`${where}.nodes.inputs`,(one2,at)=>each(one2,at,values)),each(pair.saved,`${where}.saved`,(one2,at)=>row(one2,at,[values,range(count,count+entering),amount,amount]))}
function checkFrames(pair,where){let{frames,layouts,nodes}=pair,word=range(0,pair.strings.length),seen={steps:new Uint8Array(nodes.name.length),frames:new Uint8Array(
frames.length)};need(frames.length>0,`${where}.frames`,"there is no frame"),frames.forEach((frame2,id2)=>{let at=`${where}.frames[${id2}]`;word(frame2.name,`${at}\
.name`),word(frame2.label,`${at}.label`),need(KINDS.includes(frame2.kind),`${at}.kind`,`${said(frame2.kind)} is none of ${KINDS.join(", ")}`),within(frame2.parent,
id2?0:-1,id2?frames.length:0,`${at}.parent`),within(frame2.layout,frame2.kind==="loop"?-1:0,frame2.kind==="loop"?0:layouts.length,`${at}.layout`),row(frame2.counts,
`${at}.counts`,[amount,amount,amount,amount,amount]),each(frame2.units,`${at}.units`,range(-frames.length,nodes.name.length)),need(frame2.kind!=="loop"||frame2.
units.length,at,"a loop without a turn");for(let unit of frame2.units){let[kept,place3]=unit<0?[seen.frames,-unit-1]:[seen.steps,unit];need(!kept[place3]++,at,`${unit<
0?"frame":"step"} ${place3} is in two frames`);let parent=unit<0?frames[place3].parent:nodes.frame[place3];need(parent===id2,at,`${unit<0?"frame":"step"} ${place3}\
 says that it is in frame ${parent}`),need(frame2.kind!=="loop"||unit<0,at,`step ${place3} is a turn of a loop`)}});let lost=seen.steps.indexOf(0);need(lost<0,`${where}\
.frames`,`step ${lost} is in no frame`),frames.forEach((_2,id2)=>{let[up,left]=[id2,frames.length];for(;up>0&&left--;)need(seen.frames[up],`${where}.frames[${up}\
]`,"it is in no frame"),up=frames[up].parent;need(up<=0,`${where}.frames[${id2}]`,"it is inside itself")}),frames.forEach((frame2,id2)=>{frame2.layout>=0&&checkPlaces(
layouts[frame2.layout],frame2,`${where}.frames[${id2}]`)})}function checkPlaces(layout,frame2,at){let placed=new Uint8Array(frame2.units.length);for(let members of layout.
rows)members.forEach((places,part)=>{for(let place3 of places)need(place3<frame2.units.length&&!placed[place3]++,at,`its layout gives ${place3} no place, or two`),
need(frame2.units[place3]<0==(part===1),at,`its layout takes unit ${place3} for a ${part===1?"frame":"step"}`)});need(placed.every(Boolean),at,`its layout has n\
o place for unit ${placed.indexOf(0)}`)}function checkLayouts(pair,where){each(pair.layouts,`${where}.layouts`,(one2,at)=>{let layout=object(one2,at),count=0;each(
layout.rows,`${at}.rows`,(members,here)=>{row(members,here,[0,1,2].map(()=>(part,there)=>each(part,there,range(0,1/0)))),count+=members.flat().length}),row(layout.
slots,`${at}.slots`,[range(0,1e5),range(0,1e5)]);let place3=range(-1,count);["left","right"].forEach((side,which)=>each(layout[side],`${at}.${side}`,(edge,here)=>row(
edge,here,[place3,place3,range(-1,layout.slots[which]),range(0,pair.strings.length),amount]))),each(layout.bridges,`${at}.bridges`,(bridge,here)=>row(bridge,here,
[place3,place3,amount,amount]))})}function checkMemory(pair,where){let count=pair.nodes.name.length,memory=object(pair.memory,`${where}.memory`);amount(memory.before,
`${where}.memory.before`),each(memory.live,`${where}.memory.live`,amount),need(pair.memory.live.length===count,`${where}.memory.live`,`${count} entries were exp\
ected, one a step, found ${pair.memory.live.length}`);let values=range(-1,count+pair.ports.length),span=(one2,at)=>row(one2,at,[values,range(0,count+1),range(0,
count+1),amount,range(0,pair.strings.length)]);for(let name of["spans","held"])each(memory[name],`${where}.memory.${name}`,span);row(memory.peak,`${where}.memor\
y.peak`,[range(-1,Math.max(count,1)),amount])}function checkStats(pair,where){if(pair.stats===void 0)return;let{value,rows}=object(pair.stats,where);each(value,
`${where}.value`,range(0,pair.nodes.name.length+pair.ports.length)),each(rows,`${where}.rows`,(one2,at)=>{need(list(one2,at).length===9,at,`9 numbers were expec\
ted, found ${one2.length}`),each(one2,at,(number2,here)=>need(number2===null||Number.isFinite(number2),here,`${said(number2)} is not a number`))}),need(value.length===
rows.length,where,`${value.length} values and ${rows.length} rows`)}function checkPair(value,where){let pair=object(value,where);text(pair.name,`${where}.name`),
each(pair.strings,`${where}.strings`,text),need(pair.strings[0]==="",`${where}.strings`,"the first is not the empty text");for(let name of["ports","sources","sa\
ved","frames","layouts"])list(pair[name],`${where}.${name}`);each(pair.frames,`${where}.frames`,object);let word=range(0,pair.strings.length);each(pair.sources,
`${where}.sources`,(one2,at)=>row(one2,at,[word,range(0,1/0),word,word,word])),checkColumns(pair,where),checkPorts(pair,where),checkLayouts(pair,where),checkFrames(
pair,where),checkMemory(pair,where);let code=object(pair.code,`${where}.code`);for(let lines of[code.forward,code.backward])each(lines,`${where}.code`,text);row(
code.ends,`${where}.code.ends`,[0,1].map(()=>(lines,at)=>each(lines,at,text))),checkStats(pair,`${where}.stats`)}function parse(json){let value;try{value=JSON.parse(
json)}catch(error){fail("data",`they are not JSON (${error.message})`)}let page=object(value,"data");need(page.format===1,"format",`this page reads format 1, fo\
und ${said(page.format)}; write the page again with this version of Backprint`),text(page.title,"title"),each(page.facts,"facts",(one2,at)=>row(one2,at,[text,text])),
each(page.notes,"notes",text),each(page.pairs,"pairs",checkPair),need(page.pairs.length,"pairs","there is none");let pairs=page.pairs.map(pair=>({...pair,name:clean(
pair.name)}));return{...page,title:clean(page.title),facts:page.facts.map(([name,said2])=>[clean(name),clean(said2)]),notes:page.notes.map(clean),pairs}}var frameUnit=frame2=>-frame2-1,Model=class{constructor(data){this.data=data;let{nodes,frames}=data;this.count=nodes.name.length,this.strings=data.strings.map(clean),
this.entering=data.ports.filter(port=>port.into),this.shorts=nodes.op.map(op=>short(this.strings[op])),this.kinds=this.shorts.map((name,at)=>kindOf(name,(nodes.
flags[at]&VIEW)!==0,(nodes.flags[at]&GUARD)!==0)),[this.starts,this.users]=usersOf(nodes.inputs,this.count+this.entering.length),this.pulled=reversed(nodes.partners,
this.count),this.place=new Int32Array(this.count),this.framePlace=new Int32Array(frames.length);for(let frame2 of frames)frame2.units.forEach((unit,at)=>(unit<0?
this.framePlace:this.place)[unit<0?-unit-1:unit]=at);[this.alike,this.depth]=this.structure(),this.deepest=this.depth.reduce((most,depth)=>Math.max(most,depth),
0),this.timed=data.memory.spans.length>0||data.memory.peak[1]>0||data.memory.before>0,this.savedFrom=new Map;for(let[value,port,size,fresh]of data.saved)listed(
this.savedFrom,value).push([port,size,fresh]);this.pills=this.portPills(),this.bad=new Map,data.stats?.value.forEach((value,at)=>{let[nan,inf]=[data.stats.rows[at][6],
data.stats.rows[at][7]];(nan||inf)&&this.bad.set(value,{nan,inf})}),this.badFrames=new Set([...this.bad.keys()].filter(value=>value<this.count).flatMap(value=>this.
above(value)))}data;count;strings;entering;shorts;kinds;starts;users;pulled;place;framePlace;alike;depth;deepest;pills;timed;bad;badFrames;savedFrom;lines;paths;lineAt;text(id2){
return this.strings[id2]}frame(id2){return this.data.frames[id2]}isForward(node){return node<this.data.forward}nameOf(value){return value<0?"a constant":this.strings[value<
this.count?this.data.nodes.name[value]:this.entering[value-this.count].name]}specOf(value){return value<0?"":this.strings[value<this.count?this.data.nodes.spec[value]:
this.entering[value-this.count].spec]}usersOf(value){return[...this.users.subarray(this.starts[value],this.starts[value+1])]}lineOf(node){let source=this.data.sources[this.
data.nodes.source[node]];return source?`${this.strings[source[0]]}:${source[1]}`:""}moduleOf(node){let source=this.data.sources[this.data.nodes.source[node]];return source?
this.strings[source[4]]:""}isSaved(node){return(this.data.nodes.flags[node]&SAVED)!==0}isView(node){return(this.data.nodes.flags[node]&VIEW)!==0}above(unit){let found=[];
for(let at=unit<0?this.frame(-unit-1).parent:this.data.nodes.frame[unit];at>=0;at=this.frame(at).parent)found.push(at);return found}title(id2){let{name,parent,kind,
label}=this.frame(id2),[own,around]=[this.strings[name],parent>=0?this.strings[this.frame(parent).name]:""];return(around&&own.startsWith(`${around}.`)?own.slice(
around.length+1):own)||this.strings[label]||kind}isTurn(id2){let{parent}=this.frame(id2);return parent>=0&&this.frame(parent).kind==="loop"}path(id2){return(this.
paths??=this.allPaths())[id2]}allPaths(){let paths=[],own=id2=>{if(paths[id2]!==void 0)return paths[id2];let{name,parent,kind}=this.frame(id2),around=parent>0?own(
parent):"",said2=kind==="loop"?this.strings[name].replace(/\.?\d+…\d+$/,""):this.strings[name];return paths[id2]=parent<0?"":[around,said2].filter(Boolean).join(
kind==="line"?" ":".")};return this.data.frames.forEach((_2,id2)=>own(id2)),paths}*inside(id2){for(let unit of this.frame(id2).units)unit>=0?yield unit:yield*this.
inside(-unit-1)}call(node){let{op,args,inputs}=this.data.nodes,filled=this.strings[args[node]].replace(/\{(\d+)\}/g,(all,at)=>at in inputs[node]?this.nameOf(inputs[node][at]):
all);return`${this.strings[op[node]]}(${filled})`}echoOf(node){let{echo,partners}=this.data.nodes,said2=this.strings[echo[node]];return said2&&`${said2} ${partners[node].
map(partner=>this.nameOf(partner)).join(", ")}`}code(){if(this.lines)return this.lines;let{forward,code}=this.data,lines=[],add=text2=>lines.push({node:-1,text:clean(
text2)}),before="",steps=(from,to)=>{for(let node=from;node<to;node++){let parts=[this.echoOf(node),this.moduleOf(node),this.lineOf(node)].filter(Boolean).join(
"; ");parts&&parts!==before&&lines.push({node,text:`# ${before=parts}`}),lines.push({node,text:null})}};return code.forward.forEach(add),steps(0,forward),code.ends[0].
forEach(add),(this.count>forward||code.backward.length)&&add(""),code.backward.forEach(add),steps(forward,this.count),code.ends[1].forEach(add),this.lineAt=new Int32Array(
this.count),lines.forEach((line,at)=>{line.node>=0&&(this.lineAt[line.node]=at)}),this.lines=lines}lineOfCode(node){return this.code(),this.lineAt[node]}structure(){
let{frames}=this.data,known=new Map,[alike,depth]=[new Int32Array(frames.length),new Int32Array(frames.length)],visit=(id2,around,level)=>{let loop=around>=0&&frames[frames[id2].
parent].kind==="loop",key=`${around}:${loop?"*":this.framePlace[id2]}`;known.has(key)||known.set(key,known.size),alike[id2]=known.get(key),depth[id2]=level;for(let unit of frames[id2].
units)unit<0&&visit(-unit-1,alike[id2],loop?level:level+1)};return visit(0,-1,0),[alike,depth]}portPills(){let found=new Map,at=node=>found.get(node)??(found.set(
node,{outer:[],made:[]}),found.get(node)),pill=port=>{let name=this.strings[port.name];return{text:name.split(".").at(-1),title:`${port.role} ${name} ${this.strings[port.
spec]}`,role:port.role}};for(let port of this.entering)if(port.role==="parameter"||port.role==="buffer")for(let user of this.usersOf(port.value))at(user).outer.
push(pill(port));for(let port of this.data.ports)!port.into&&port.role!=="saved"&&port.value>=0&&port.value<this.count&&at(port.value).made.push(pill(port));return found}};
function listed(map,key){let found=map.get(key)??[];return map.set(key,found),found}function usersOf(inputs,values){let starts=new Int32Array(values+1),unique=inputs.
map(row2=>[...new Set(row2)]);for(let row2 of unique)for(let value of row2)starts[value+1]++;for(let at=0;at<values;at++)starts[at+1]+=starts[at];let next=starts.
slice(),users=new Int32Array(starts[values]);return unique.forEach((row2,node)=>row2.forEach(value=>users[next[value]++]=node)),[starts,users]}function reversed(rows,count){
let found=Array.from({length:count},()=>[]);return rows.forEach((row2,node)=>row2.forEach(target=>found[target].push(node))),found}var GUTTER=28,NODE=156,SIDE=10,ENTRY=GUTTER+SIDE+NODE/2,TALL=28,VIEW_TALL=20,FOLDED=50,HEAD=24,FOOT=8,GAP=28,PAD=14,LANE=10,PILL=15;function isOpen(model,opened,frame2){
return opened.open.has(model.alike[frame2])}function shownOf(model,opened,frame2){let{kind,units}=model.frame(frame2);return kind!=="loop"?frame2:shownOf(model,
opened,-units[Math.min(turnOf(model,opened,frame2),units.length-1)]-1)}function turnOf(model,opened,loop){return Math.min(opened.turn.get(model.alike[loop])??0,
model.frame(loop).units.length-1)}function pillWidth(text2){return Math.min(text2.length,16)*5.6+12}function pillsOf(model,node){let found=model.pills.get(node),
none2=[];if(!found)return{left:none2,right:none2};let row2=pill=>({...pill,text:fit(pill.text,16)}),all=[...found.outer,...found.made].map(row2),shown=all.length>
4?[...all.slice(0,3),{text:`+${all.length-3}`,title:all.slice(3).map(one2=>one2.title).join(`
`),role:"more"}]:all;return model.isForward(node)?{left:shown,right:none2}:{left:none2,right:shown}}function nodeBlock(model,node){let{left,right}=pillsOf(model,
node),room=pills=>pills.length?Math.max(...pills.map(one2=>pillWidth(one2.text)))+5:0,high=Math.max(model.isView(node)?VIEW_TALL:TALL,Math.max(left.length,right.
length)*PILL);return{left:NODE/2+room(left),right:NODE/2+room(right),height:high}}var CLOSED={left:GUTTER+SIDE+NODE,right:GUTTER+SIDE+NODE,height:FOLDED};function measure(model,opened,frame2){
if(!isOpen(model,opened,frame2))return CLOSED;let shown=model.frame(shownOf(model,opened,frame2)),layout=model.data.layouts[shown.layout],inside=[],tops=[],bottoms=[],
[top,left,right]=[HEAD+GAP,CLOSED.left,CLOSED.right];layout.rows.forEach((row2,at)=>{let sized=row2.map(part=>part.map(place3=>{let unit=shown.units[place3];return{
unit,block:unit<0?measure(model,opened,-unit-1):nodeBlock(model,unit)}})),high=Math.max(VIEW_TALL,...sized.flat().map(one2=>one2.block.height)),put=(unit,x2,block)=>{
inside.push({unit,x:x2,y:top+(high-block.height)/2,block,row:at}),[left,right]=[Math.max(left,block.left-x2),Math.max(right,block.right+x2)]},[west,east]=putFrames(
sized[1],put),edge=-Math.max(west,GUTTER)-SIDE;for(let{unit,block}of sized[0].reverse())[edge]=[edge-block.right-block.left-12,put(unit,edge-block.right,block)];
edge=Math.max(east,GUTTER)+SIDE;for(let{unit,block}of sized[2])[edge]=[edge+block.right+block.left+12,put(unit,edge+block.left,block)];tops.push(top),bottoms.push(
top+high),top+=high+GAP});let[lanes,height]=[layout.slots.map(count=>count?count*LANE+6:0),Math.max(top,HEAD+GAP)+FOOT];return{left:left+lanes[0]+PAD,right:right+
lanes[1]+PAD,height,inside,tops,bottoms,walls:[-left-4,right+4]}}function putFrames(frames,put){if(!frames.length)return[0,0];let wide=frames.reduce((sum,{block})=>sum+
block.left+block.right,0)+(frames.length-1)*18,edge=frames.length===1?-frames[0].block.left:-wide/2,west=-edge;for(let{unit,block}of frames)put(unit,edge+block.
left,block),edge+=block.left+block.right+18;return[west,edge-18]}function place(model,opened){let root2=measure(model,opened,0),boxes=[],lines=[],width=bandWidth(
model),visit=(unit,block,x2,y2,level)=>{let frame2=-unit-1,node=unit>=0,box={unit,x:x2-(node?NODE/2:block.left),y:y2,w:node?NODE:block.left+block.right,h:block.
height,mid:x2,kind:node?"node":block.inside?"open":"folded",level};if(boxes.push(box),!block.inside)return;for(let child of block.inside)visit(child.unit,child.
block,x2+child.x,y2+child.y,level+1);let shown=shownOf(model,opened,frame2);lines.push(...edgesOf(model,shown,frame2,block,x2,y2,width))};visit(frameUnit(0),root2,
0,0,0);let byUnit=new Map(boxes.map(box=>[box.unit,box])),lineOf=new Map(lines.map(line=>[lineKey(line.within,line.side,line.from,line.to),line]));return{boxes,
lines,byUnit,lineOf,left:-root2.left,right:root2.right,height:root2.height}}function lineKey(within2,side,from,to){return`${within2}/${side}/${from??"in"}/${to??
"out"}`}function bandWidth(model){let all=Math.max(1,model.frame(0).counts[2],...model.data.saved.map(one2=>one2[2]));return bytes2=>Math.min(20,Math.max(1.6,20*
Math.cbrt(bytes2/all)))}function edgesOf(model,shown,frame2,block,x2,y2,width){let layout=model.data.layouts[model.frame(shown).layout],{units}=model.frame(shown),
placed=new Map(block.inside.map(one2=>[one2.unit,one2])),found=[];for(let side of["left","right"]){let spread=fanOf(layout,side,units,placed),said2=new Set;layout[side].
forEach((edge,at)=>{let ends=endsOf(edge,side,units,placed,block,spread[at]),path=edge[2]<0?curve(ends[0],ends[1]):channel(ends,edge,side,block);found.push(lineAt(
path,x2,y2,{within:frame2,side,from:edge[0]<0?null:units[edge[0]],to:edge[1]<0?null:units[edge[1]],width:1.3+Math.log2(Math.max(1,edge[4]))*.35,label:said2.has(
edge[0])?"":model.text(edge[3]).replace(/\].*$/,"]")})),said2.add(edge[0])})}return layout.bridges.forEach((bridge,at)=>{let path=bridgePath(bridge,units,placed,
block,at);found.push(lineAt(path,x2,y2,{within:frame2,side:"bridge",from:bridge[0]<0?null:units[bridge[0]],to:bridge[1]<0?null:units[bridge[1]],width:width(bridge[2]),
label:`${bridge[2]}`}))}),found}function lineAt(path,x2,y2,rest){let points=path.parts.flatMap(([,...all])=>all),[xs,ys]=[points.map(one2=>one2[0]+x2),points.map(
one2=>one2[1]+y2)],[west,north]=[Math.min(...xs),Math.min(...ys)],d2=path.parts.map(([command,...all])=>command+all.map(one2=>`${round(one2[0]+x2)},${round(one2[1]+
y2)}`).join(" ")).join("");return{...rest,d:d2,at:[path.at[0]+x2,path.at[1]+y2],box:[west,north,Math.max(...xs)-west,Math.max(...ys)-north]}}var round=value=>Math.
round(value*10)/10;function fanOf(layout,side,units,placed){let into=new Map,found=layout[side].map(()=>0);layout[side].forEach((edge,at)=>into.set(edge[1],[...into.
get(edge[1])??[],at]));let from=at=>{let[source,,slot]=layout[side][at],outwards=side==="left"?-1:1;return slot>=0?outwards*(1e4+slot):source<0?outwards*ENTRY:placed.
get(units[source]).x};for(let[target,edges]of into){if(edges.length<2||target<0)continue;edges.sort((a3,b)=>from(a3)-from(b));let room=Math.min(NODE*.6,edges.length*
16);edges.forEach((at,order)=>found[at]=((order+.5)/edges.length-.5)*room)}return found}function endsOf([from,to],side,units,placed,block,offset){let down=side===
"left",sign=down?-1:1,[head,foot]=[HEAD,block.height-FOOT],own=first2=>{let at=first2===down?head:foot;return{x:sign*ENTRY,y:at,clear:at}},end=(position,first2)=>{
if(position<0)return own(first2);let one2=placed.get(units[position]),low=first2===down;return{x:one2.x+(one2.unit<0?sign*ENTRY:0)+(first2?0:offset),y:low?one2.
y+one2.block.height:one2.y,clear:low?block.bottoms[one2.row]:block.tops[one2.row]}};return[end(from,!0),end(to,!1)]}function curve(from,to){let way=Math.sign(to.
clear-from.clear)||Math.sign(to.y-from.y)||1,at=labelPoint(from,way);if(Math.abs(from.x-to.x)<.5)return{parts:[["M",[from.x,from.y]],["L",[to.x,to.y]]],at};let bend=Math.
max(10,Math.abs(to.clear-from.clear)/2)*way,over=["C",[from.x,from.clear+bend],[to.x,to.clear-bend],[to.x,to.clear]];return{parts:[["M",[from.x,from.y]],["L",[from.
x,from.clear]],over,["L",[to.x,to.y]]],at}}var labelPoint=(from,way)=>[from.x+5,from.y+(way>0?12:-6)];function channel([from,to],edge,side,block){let slot=edge[2],
outwards=side==="left"?-1:1,lane=block.walls[side==="left"?0:1]+outwards*(slot+1)*LANE,way=side==="left"?1:-1,apart=5+slot%4*2.5,[leave,arrive]=[from.clear+way*
apart,to.clear-way*apart],corners=[[from.x,from.y],[from.x,leave],[lane,leave],[lane,arrive],[to.x,arrive],[to.x,to.y]];return{parts:rounded(corners),at:labelPoint(
from,way)}}function rounded(points){let parts=[["M",points[0]]];for(let at=1;at<points.length-1;at++){let[before,here,after]=[points[at-1],points[at],points[at+
1]],size=Math.min(6,distance(before,here)/2,distance(here,after)/2);parts.push(["L",towards(here,before,size)],["Q",here,towards(here,after,size)])}return parts.
push(["L",points[points.length-1]]),parts}var distance=(a3,b)=>Math.hypot(a3[0]-b[0],a3[1]-b[1]);function towards(from,to,size){let all=distance(from,to)||1;return[
from[0]+(to[0]-from[0])*size/all,from[1]+(to[1]-from[1])*size/all]}function bridgePath([from,to],units,placed,block,order){let[source,target]=[from,to].map(position=>position<
0?void 0:placed.get(units[position])),middle=(one2,none2)=>one2?one2.y+one2.block.height/2:none2,[high,low]=[middle(source,HEAD),middle(target,block.height-FOOT)],
end=(one2,own,other,sign)=>one2?one2.unit>=0?{x:one2.x+sign*NODE/2,y:own,sideways:!0}:{x:one2.x,y:other>own?one2.y+one2.block.height:one2.y,sideways:!1}:{x:0,y:own,
sideways:!1},[a3,b]=[end(source,high,low,1),end(target,low,high,-1)],lane=a3.sideways&&b.sideways?(order*4%9-4)*4:0;return band(a3,b,lane)}function band(a3,b,lane){
let at=[(a3.x+b.x)/2,(a3.y+b.y)/2],far=Math.abs(b.y-a3.y),way=Math.sign(b.y-a3.y);if(far<3||a3.x===b.x&&!a3.sideways&&!b.sideways)return{parts:[["M",[a3.x,a3.y]],
["L",[b.x,b.y]]],at};let start3=[a3.x,a3.y],end=[b.x,b.y];if(far<60){let first2=a3.sideways?[(a3.x+b.x)/2,a3.y]:[a3.x,(a3.y+b.y)/2],last=b.sideways?[(a3.x+b.x)/
2,b.y]:[b.x,(a3.y+b.y)/2];return{parts:[["M",start3],["C",first2,last,end]],at}}let turn=way*24,[low,high]=[[lane,a3.y+turn],[lane,b.y-turn]],leave=a3.sideways?
[lane,a3.y]:[a3.x,a3.y+turn*.6],arrive=b.sideways?[lane,b.y]:[b.x,b.y-turn*.6],round2=(one2,corner)=>one2.sideways?corner:[lane,corner[1]];return{parts:[["M",start3],
["C",leave,round2(a3,leave),low],["L",high],["C",round2(b,arrive),arrive,end]],at:[lane,at[1]]}}var ROOM=28;function firstOpen(model){let open=new Set,state={open,turn:new Map},queue=[0],seen=1,size=frame2=>model.frame(shownOf(model,state,frame2)).units.length,
steps=frame2=>model.frame(frame2).counts[0]+model.frame(frame2).counts[1];for(;queue.length;){queue.sort((a3,b)=>steps(b)-steps(a3));let frame2=queue.shift();if(frame2!==
0&&seen+size(frame2)>ROOM)break;open.add(model.alike[frame2]),seen+=size(frame2);for(let unit of model.frame(shownOf(model,state,frame2)).units)unit<0&&queue.push(
-unit-1)}return state}function openedTo(model,state,depth){let open=new Set;return model.data.frames.forEach((_2,id2)=>{model.depth[id2]<depth&&open.add(model.alike[id2])}),
{open,turn:state.turn}}function depthOf(model,state){let depth=model.deepest+1;return model.data.frames.forEach((_2,id2)=>{!model.isTurn(id2)&&!isOpen(model,state,
id2)&&(depth=Math.min(depth,model.depth[id2]))}),depth}function toggled(model,state,frame2){let open=new Set(state.open),id2=model.alike[frame2];return open.delete(
id2)||open.add(id2),{open,turn:state.turn}}function openedInside(model,state,frame2){let open=new Set(state.open),visit=id2=>{open.add(model.alike[id2]);for(let unit of model.
frame(id2).units)unit<0&&visit(-unit-1)};return visit(frame2),{open,turn:state.turn}}function turned(model,state,loop,turn){let last=model.frame(loop).units.length-
1;return{open:state.open,turn:new Map(state.turn).set(model.alike[loop],Math.max(0,Math.min(last,turn)))}}function revealed(model,state,unit){let[open,turn]=[new Set(
state.open),new Map(state.turn)],inner=unit;for(let frame2 of model.above(unit))model.frame(frame2).kind==="loop"&&turn.set(model.alike[frame2],model.framePlace[-inner-
1]),open.add(model.alike[frame2]),inner=frameUnit(frame2);return{open,turn}}function visibleOf(model,scene,unit){let shown=frameUnit(0);for(let frame2 of[...model.
above(unit).reverse().map(frameUnit),unit])scene.byUnit.has(frame2)&&(shown=frame2);return shown}function hashOf(pair,unit,opened){let parts=[`pair=${pair}`];unit!==
null&&parts.push(unit<0?`frame=${-unit-1}`:`step=${unit}`),parts.push(`open=${ranges([...opened.open])}`);let turns=[...opened.turn].filter(([,turn])=>turn).map(
([loop,turn])=>`${loop}:${turn}`);return`#${[...parts,...turns.length?[`turn=${turns.join(".")}`]:[]].join("&")}`}function ranges(numbers){let found=[];for(let number2 of numbers.
sort((a3,b)=>a3-b)){let last=found.at(-1);last&&last[1]===number2-1?last[1]=number2:found.push([number2,number2])}return found.map(([from,to])=>from===to?`${from}`:
`${from}-${to}`).join(".")}function spotOf(hash,models){let parts=new Map(hash.replace(/^#/,"").split("&").map(part=>part.split("=",2))),number2=(name,limit)=>{
let text2=parts.get(name),found=Number(text2);return text2&&/^\d+$/.test(text2)&&found<limit?found:null},pair=number2("pair",models.length)??0,model=models[pair],
[step,frame2]=[number2("step",model.count),number2("frame",model.data.frames.length)],unit=step??(frame2===null?null:frameUnit(frame2));return{pair,unit,opened:parts.
has("open")?openedOf(parts.get("open"),parts.get("turn")??""):null}}function openedOf(open,turn){let found=new Set,turns=new Map;for(let[,from,to]of open.matchAll(
/(\d{1,6})(?:-(\d{1,6}))?/g))for(let id2=Number(from);id2<=Number(to??from);id2++)found.add(id2);for(let[,loop,at]of turn.matchAll(/(\d{1,6}):(\d{1,6})/g))turns.
set(Number(loop),Number(at));return{open:found,turn:turns}}function relatedTo(model,node){let{nodes,saved}=model.data,forward=model.isForward(node),partners=forward?model.pulled[node]:nodes.partners[node],inputs=[...new Set(
nodes.inputs[node])],touched=forward?(model.savedFrom.get(node)??[]).map(([port,bytes2])=>({value:node,users:model.usersOf(port),bytes:bytes2})):saved.filter(([
,port])=>inputs.includes(port)).map(([value,,bytes2])=>({value,users:[node],bytes:bytes2}));return{partners,inputs,users:model.usersOf(node),saved:touched}}function route(model,scene,from,to,side){
let found=[],chain=node=>{let shown=visibleOf(model,scene,node),frames=model.above(shown).filter(frame2=>scene.byUnit.has(-frame2-1));return{shown,frames}},[a3,
b]=[chain(from),chain(to)],shared=a3.frames.find(frame2=>b.frames.includes(frame2));if(shared===void 0||a3.shown===b.shown)return found;let line=(frame2,source2,target2)=>{
let one2=scene.lineOf.get(lineKey(frame2,side,source2,target2));one2&&found.push(one2)},inner=end=>end.frames.slice(0,end.frames.indexOf(shared)),source=a3.shown;
for(let frame2 of inner(a3))[source]=[-frame2-1,line(frame2,source,null)];let target=b.shown;for(let frame2 of inner(b))[target]=[-frame2-1,line(frame2,null,target)];
return line(shared,source,target),found}function litBy(model,scene,unit){let units=new Map,lines=new Set,steps=new Set,own=visibleOf(model,scene,unit),add=(other,role)=>{
let shown=visibleOf(model,scene,other);steps.add(other),shown!==own&&!units.has(shown)&&scene.byUnit.get(shown).kind!=="open"&&units.set(shown,role)};if(units.set(
own,"self"),unit<0){for(let line of scene.lines)(line.from===unit||line.to===unit)&&lines.add(line);return{units,lines,steps}}let related=relatedTo(model,unit),
side=model.isForward(unit)?"left":"right";related.partners.forEach(other=>add(other,"partner"));for(let{value,users}of related.saved)for(let user of users){if(value<
model.count){add(value,"saved");for(let line of route(model,scene,value,user,"bridge"))lines.add(line)}add(user,"saved")}for(let other of related.inputs)if(!(other>=
model.count)){add(other,"input");for(let line of route(model,scene,other,unit,side))lines.add(line)}for(let other of related.users){add(other,"user");for(let line of route(
model,scene,unit,other,side))lines.add(line)}return{units,lines,steps}}function StepLink({model,value,go}){return value<0||value>=model.count?a2("span",{class:"port",title:model.specOf(value),children:a2("bdi",{children:model.nameOf(
value)})}):a2("button",{class:`link ${model.isForward(value)?"forward":"backward"}`,title:model.call(value),onClick:()=>go(value),children:a2("bdi",{children:model.
nameOf(value)})})}function StepLinks({model,values,go,most=8}){return values.length?a2("span",{class:"links",children:[values.slice(0,most).map(value=>a2(StepLink,
{model,value,go},value)),values.length>most&&a2("span",{class:"soft",children:["and ",whole(values.length-most)," more"]})]}):a2("span",{class:"soft",children:"\
none"})}function Bar({share,side}){return a2("svg",{class:`bar ${side}`,width:"48",height:"8","aria-hidden":"true",children:[a2("rect",{width:"48",height:"8",rx:"\
2",class:"track"}),a2("rect",{width:Math.max(share>0?1:0,48*Math.min(1,share)),height:"8",rx:"2"})]})}var FIRST=60,Table=class extends x{state={sort:this.props.
sort,most:FIRST};sorted(){let[at,way]=this.state.sort,{value}=this.props.columns[at],keys=new Map(this.props.rows.map(row2=>[row2,value(row2)]));return[...this.
props.rows].sort((a3,b)=>{let[x2,y2]=[keys.get(a3),keys.get(b)];return way*(x2<y2?-1:x2>y2?1:0)})}render({columns,rows,empty:empty2}){if(!rows.length)return a2(
"p",{class:"soft",children:empty2});let{sort:[by,way],most}=this.state,number2=columns.map(column=>typeof column.value(rows[0])=="number"),head=(column,at)=>a2(
"th",{class:number2[at]?"r":"","aria-sort":by===at?way>0?"ascending":"descending":void 0,children:a2("button",{onClick:()=>this.setState({sort:[at,by===at?way>0?
-1:1:number2[at]?-1:1]}),children:column.name})},at);return a2("div",{class:"table",children:[a2("table",{children:[a2("thead",{children:a2("tr",{children:columns.
map(head)})}),a2("tbody",{children:this.sorted().slice(0,most).map((row2,index)=>a2("tr",{children:columns.map((column,at)=>a2("td",{class:number2[at]?"r":"",children:column.
cell(row2)}))},index))})]}),rows.length>most&&a2("button",{class:"more",onClick:()=>this.setState({most:most*5}),children:["show more: ",whole(most)," of ",whole(
rows.length)]})]})}};function Details(props){let{selected}=props;return selected===null?a2(About,{...props}):selected<0?a2(FrameDetails,{...props,id:-selected-1}):a2(StepDetails,{...props,
node:selected})}function Facts({rows}){return a2("dl",{children:rows.map(([name,value])=>value!==""&&value!==null&&[a2("dt",{children:name},name),a2("dd",{children:value},
`${name} `)])})}function About({page,model}){let[forward,backward,saved,first2,second]=model.frame(0).counts;return a2("div",{class:"panel",children:[a2("h2",{children:a2(
"bdi",{children:page.title})}),a2(Facts,{rows:[["Forward",`${plural(forward,"step")}${first2?`, ${flops(first2)}FLOP in products`:""}`],["Backward",backward?`${plural(
backward,"step")}${second?`, ${flops(second)}FLOP in products`:""}`:"this graph has no backward"],["Saved",bytes(saved)],["Peak",model.timed?bytes(model.data.memory.
peak[1]):""],...page.facts.map(([name,text2])=>[name,a2("bdi",{children:text2})])]}),page.notes.map(note=>a2("p",{class:"remark",children:a2("bdi",{children:note})},
note)),a2("p",{class:"soft",children:"The forward runs down on the left, the backward up on the right. Bands between them are saved tensors. Click a frame to op\
en it, a step to see what belongs to it."})]})}function FrameDetails({model,opened,id:id2,go,onFold,onOpenAll,onTurn}){let frame2=model.frame(id2),[forward,backward,
saved,first2,second]=frame2.counts,turn=frame2.kind==="loop"?turnOf(model,opened,id2):-1,heavy=frame2.kind==="loop"?[]:[...model.inside(id2)].filter(node=>model.
data.nodes.product[node]>0).sort((a3,b)=>model.data.nodes.product[b]-model.data.nodes.product[a3]).slice(0,6);return a2("div",{class:"panel",children:[a2("h2",{
children:a2("bdi",{children:[model.path(id2)||model.title(id2),turn>=0?` × ${frame2.units.length}`:""]})}),a2("p",{class:"buttons",children:[a2("button",{onClick:()=>onFold(
id2),children:isOpen(model,opened,id2)?"close":"open"}),a2("button",{onClick:()=>onOpenAll(id2),children:"open all inside"})]}),turn>=0&&a2("p",{class:"turns",children:[
a2("button",{"aria-label":"previous turn",disabled:turn===0,onClick:()=>onTurn(id2,turn-1),children:"‹"}),a2("label",{children:["turn ",a2("input",{type:"numb\
er",min:1,max:frame2.units.length,value:turn+1,onChange:event=>onTurn(id2,Number(event.currentTarget.value)-1)})," of ",whole(frame2.units.length)]}),a2("button",
{"aria-label":"next turn",disabled:turn===frame2.units.length-1,onClick:()=>onTurn(id2,turn+1),children:"›"}),a2("bdi",{class:"soft",children:model.path(-frame2.
units[turn]-1)})]}),a2(Facts,{rows:[["Kind",frame2.kind==="loop"?`loop of ${whole(frame2.units.length)}`:frame2.kind],[frame2.kind==="module"?"Class":"Code",frame2.
label?a2("bdi",{children:model.text(frame2.label)}):""],["Forward",`${plural(forward,"step")}${first2?`, ${flops(first2)}FLOP`:""}`],["Backward",`${plural(backward,
"step")}${second?`, ${flops(second)}FLOP`:""}`],["Saved",bytes(saved)],["Largest products",heavy.length?a2(StepLinks,{model,values:heavy,go}):""],["Inside",frame2.
parent>=0?a2("button",{class:"link",onClick:()=>go(frameUnit(frame2.parent)),children:a2("bdi",{children:model.title(frame2.parent)})}):""]]})]})}function StepDetails({
model,node,go}){let{nodes,sources}=model.data,related=relatedTo(model,node),forward=model.isForward(node),source=sources[nodes.source[node]],made=model.data.ports.
filter(port=>!port.into&&port.role!=="saved"&&port.value===node),frames=model.above(node).filter(frame2=>frame2>0).reverse();return a2("div",{class:"panel",children:[
a2("h2",{class:forward?"forward":"backward",children:a2("bdi",{children:model.nameOf(node)})}),a2("p",{class:"soft",children:`${forward?"Forward":"Backward"}, s\
tep ${whole(node+1)} of ${whole(model.count)}`}),a2("pre",{children:a2("bdi",{children:model.call(node)})}),a2(Facts,{rows:[["Operator",`${model.text(nodes.op[node])}\
 (${model.kinds[node]})`],["Type",a2("code",{children:model.text(nodes.spec[node])})],[forward?"In the backward":"In the forward",a2(StepLinks,{model,values:related.
partners,go})],["Echo",model.echoOf(node)],["Inputs",a2(StepLinks,{model,values:related.inputs,go})],["Users",a2(StepLinks,{model,values:related.users,go})],["L\
eaves as",made.length?a2("span",{class:"links",children:made.map(port=>a2("span",{class:"port",title:model.text(port.spec),children:[port.role," ",a2("bdi",{children:model.
text(port.name)})]}))}):""],["Saved",related.saved.length?related.saved.map(one2=>a2("div",{children:[bytes(one2.bytes)," ",forward?"for ":"from ",forward?a2(StepLinks,
{model,values:one2.users,go}):a2(StepLink,{model,value:one2.value,go})]},one2.value)):""],["FLOPs",nodes.product[node]||nodes.other[node]?[nodes.product[node]&&
`${flops(nodes.product[node])} in products`,nodes.other[node]&&`${flops(nodes.other[node])} in others`].filter(Boolean).join(", "):""],["Bytes",model.timed?`${bytes(
nodes.read[node])} read, ${bytes(nodes.written[node])} written${model.isView(node)?", a view":nodes.memory[node]?`, ${bytes(nodes.memory[node])} new`:""}`:""],[
"Live",model.timed?bytes(model.data.memory.live[node]):""],["Source",source?a2("span",{children:[a2("bdi",{children:model.lineOf(node)}),source[2]?a2("span",{class:"\
soft",children:[" in ",a2("bdi",{children:model.text(source[2])})]}):"",a2("code",{class:"source",children:a2("bdi",{children:model.text(source[3])})})]}):""],[
"Module",source&&model.moduleOf(node)?a2("bdi",{children:model.moduleOf(node)}):""],["Within",frames.length?a2("span",{class:"links",children:frames.map(frame2=>a2(
"button",{class:"link",onClick:()=>go(frameUnit(frame2)),children:a2("bdi",{children:model.title(frame2)})},frame2))}):""],...statistics(model,node)]})]})}function statistics(model,node){
let at=model.data.stats?.value.indexOf(node)??-1;if(at<0)return[];let[count,min,max,mean,std,norm,nan,inf,zeros]=model.data.stats.rows[at];return[["NaN and Inf",
a2("span",{class:nan||inf?"alarm":"",children:`${whole(nan)} NaN, ${whole(inf)} Inf of ${whole(count)}`})],["Values",`${real(min)} to ${real(max)}, mean ${real(
mean)}, deviation ${real(std)}, norm ${real(norm)}, ${whole(zeros)} zero`]]}var picture_default=`/* The picture alone: also inside exported files. Okabe and Ito's colours, which colour-blind people tell apart. */
:root { --fwd: #0072b2; --fwd-soft: #e6f1f8; --fwd-line: #8fbcd9; --bwd: #c25400; --bwd-soft: #fcefe4; --bwd-line: #e5b38c;
  --save: #00805e; --save-soft: #cdebe1; --ink: #1c2127; --soft: #616b76; --line: #cfd6de; --paper: #ffffff; --band: #f6f8fa;
  --grey: #eef0f3; --found: #f5d000; --found-ink: #3a3200; --alarm: #c0182b; --alarm-ink: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --fwd: #6fbdec; --fwd-soft: #15293a; --fwd-line: #386a8c; --bwd: #f0a35e; --bwd-soft: #352415;
  --bwd-line: #8a5a2f; --save: #45cfa5; --save-soft: #14453a; --ink: #e7eaee; --soft: #9aa5b1; --line: #38414c; --paper: #14181d; --band: #1a1f26;
  --grey: #262c34; --found: #d7b600; --found-ink: #1c1900; --alarm: #ff6b78; --alarm-ink: #23060a; } }
@media print { :root { --fwd: #0072b2; --fwd-soft: #e6f1f8; --fwd-line: #8fbcd9; --bwd: #c25400; --bwd-soft: #fcefe4; --bwd-line: #e5b38c;
  --save: #00805e; --save-soft: #cdebe1; --ink: #1c2127; --soft: #616b76; --line: #cfd6de; --paper: #ffffff; --band: #f6f8fa; --grey: #eef0f3; } }
.picture { font: 11.5px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; background: var(--paper); }
.picture text { fill: var(--ink); unicode-bidi: isolate; user-select: none; }
.picture .soft { fill: var(--soft); }
.picture .paper { fill: var(--paper); }
.line path { fill: none; stroke-linecap: butt; }
.line.left path { stroke: var(--fwd-line); } .line.right path { stroke: var(--bwd-line); stroke-dasharray: 6 2.5; }
.line.bridge path { stroke: var(--save); opacity: .28; }
.line.left.bright path { stroke: var(--fwd); } .line.right.bright path { stroke: var(--bwd); } .line.bridge.bright path { opacity: .85; }
.picture .line text { font-size: 9px; fill: var(--soft); paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }
.picture .line.bridge text { fill: var(--save); font-weight: 600; } .picture .middle { text-anchor: middle; }
.tip.left path { fill: var(--fwd-line); } .tip.right path { fill: var(--bwd-line); }
.step > rect { stroke-width: 1.1; } .step.forward > rect { fill: var(--fwd-soft); stroke: var(--fwd); }
.step.backward > rect { fill: var(--bwd-soft); stroke: var(--bwd); }
.step.view > rect, .step.guard > rect { fill: var(--grey); stroke: var(--line); } .picture .step.view > text { fill: var(--soft); font-size: 10px; }
.step .kept { fill: var(--save); stroke: var(--paper); stroke-width: 1; }
.step[role], .folded, .head, .turn { cursor: pointer; }
.picture .pill rect { fill: var(--paper); stroke: var(--line); stroke-width: 1; } .picture .pill text { font-size: 9.5px; text-anchor: middle; fill: var(--soft)\
; }
.picture .pill.gradient rect { fill: var(--bwd); stroke: var(--bwd); } .picture .pill.gradient text { fill: var(--paper); font-weight: 600; }
.picture .pill.mutation rect { fill: var(--paper); stroke: var(--fwd); stroke-dasharray: 2 1.5; } .picture .pill.mutation text { fill: var(--fwd); }
.picture .pill.input rect, .picture .pill.tangent rect { stroke: var(--soft); } .picture .pill.input text, .picture .pill.tangent text { fill: var(--ink); }
.picture .pill.output rect { fill: var(--fwd); stroke: var(--fwd); } .picture .pill.output text { fill: var(--paper); font-weight: 600; }
.frame.open .body { fill: var(--paper); stroke: var(--line); stroke-width: 1.2; } .frame.open.odd .body { fill: var(--band); }
.tint { opacity: .35; } .tint.forward { fill: var(--fwd-soft); } .tint.backward { fill: var(--bwd-soft); }
.head rect { fill: var(--grey); opacity: .75; } .head:hover rect { opacity: 1; }
.picture .title { font-weight: 600; } .picture .sign { fill: var(--soft); font-weight: 400; }
.folded .hit { fill: var(--paper); } .folded .hit.odd { fill: var(--band); } .folded .half rect { stroke-width: 1.3; }
.half.forward rect { fill: var(--fwd-soft); stroke: var(--fwd); } .half.backward rect { fill: var(--bwd-soft); stroke: var(--bwd); }
.folded .half.empty rect { fill: none; stroke: var(--line); stroke-dasharray: 3 3; } .folded .half rect.behind { fill: var(--paper); opacity: .7; }
.folded .band { stroke: var(--save); opacity: .6; fill: none; } .picture .size { fill: var(--save); text-anchor: middle; font-size: 9.5px; font-weight: 600; pai\
nt-order: stroke; stroke: var(--paper); stroke-width: 3px; }
.folded.steps .half rect, .folded.line .half rect { stroke-width: 1; }
.stepper .plate { fill: var(--paper); stroke: var(--line); } .picture .stepper text { text-anchor: middle; font-weight: 600; }
.turn rect { fill: transparent; } .turn:hover rect { fill: var(--grey); } .turn.off { opacity: .25; pointer-events: none; }
.badmark rect { fill: var(--alarm); stroke: none; } .picture .badmark text { fill: var(--alarm-ink); font-size: 9px; font-weight: 700; text-anchor: middle; }
.picture .step.bad > rect { stroke: var(--alarm); stroke-width: 2.4; }
.picture .step.match > rect { stroke: var(--found); stroke-width: 3; } .found rect { fill: var(--found); } .picture .found text { fill: var(--found-ink); font-s\
ize: 10px; font-weight: 700; text-anchor: middle; }
.ring { fill: none; pointer-events: none; stroke-width: 2.5; stroke: var(--ink); }
.picture .is-self > rect:not(.hit), .picture .is-self > .half > rect:not(.behind) { stroke: var(--ink); stroke-width: 2.6; }
.picture .is-partner > rect:not(.hit), .picture .is-partner > .half > rect:not(.behind) { stroke-width: 2.6; }
.picture .is-partner.forward > rect { fill: var(--fwd-line); } .picture .is-partner.backward > rect { fill: var(--bwd-line); }
.picture .is-input > rect:not(.hit), .picture .is-user > rect:not(.hit) { stroke-width: 2; }
.picture .is-saved > rect:not(.hit), .picture .is-saved > .half > rect:not(.behind) { stroke: var(--save); stroke-width: 2.4; }
`;function detailAt(scale){return{near:scale>.42,close:scale>.78,title:Math.min(120,Math.max(12,9.5/scale))}}var HEAD2=24,LETTER=6.9;function LineShape({line,detail,
bright}){let marker=line.side==="bridge"||!detail.near?void 0:`url(#tip-${line.side})`,label=line.side==="bridge"?bytes(Number(line.label)):line.label;return a2(
"g",{class:`line ${line.side}${bright?" bright":""}`,children:[a2("path",{d:line.d,"stroke-width":line.width,"marker-end":marker}),detail.close&&line.side!=="br\
idge"&&label&&a2("text",{x:line.at[0],y:line.at[1],children:fit(label,26)}),detail.close&&line.side==="bridge"&&bright&&line.label!=="0"&&a2("text",{x:line.at[0],
y:line.at[1],class:"middle",children:label})]})}function BoxShape(props){let{box}=props;return box.kind==="node"?a2(StepShape,{...props}):box.kind==="folded"?a2(
FoldedShape,{...props}):a2(OpenShape,{...props})}function StepShape({model,box,detail,marks,role}){let node=box.unit,side=model.isForward(node)?"forward":"backw\
ard",bad=model.bad.get(node),high=model.isView(node)?20:28,top=box.y+(box.h-high)/2,middle=top+high/2+4,classes=["step",side,model.isView(node)&&"view",model.kinds[node]===
"guard"&&"guard",bad&&"bad",role,marks.steps?.has(node)&&"match"],op=model.shorts[node],name=model.nameOf(node),rest=op==="getitem"?name:restOf(name,op),room=Math.
floor((box.w-14)/LETTER),said2=op==="getitem"?"":fit(op,room),left=room-said2.length;return a2("g",{class:classes.filter(Boolean).join(" "),"data-unit":node,role:"\
button","aria-label":`${op} ${name}`,children:[a2("rect",{x:box.x,y:top,width:box.w,height:high,rx:model.isView(node)?3:5}),detail.near&&a2("text",{x:box.x+7,y:middle,
children:[said2,left>1&&a2("tspan",{class:"soft",children:fit(rest,left)})]}),model.isSaved(node)&&a2("circle",{class:"kept",cx:box.x+box.w,cy:box.y+box.h/2,r:3}),
bad&&a2(BadMark,{x:box.x+box.w-26,y:top-6,bad}),detail.near&&a2(Pills,{model,box})]})}function restOf(name,op){let stem=op.replace(/^_+/,"");return name===op||name===
stem?"":name.startsWith(stem)?name.slice(stem.length):` ${name}`}function BadMark({x:x2,y:y2,bad}){return a2("g",{class:"badmark",children:[a2("rect",{x:x2,y:y2,
width:30,height:13,rx:6.5}),a2("text",{x:x2+15,y:y2+9.7,children:bad.nan?"NaN":"Inf"})]})}function Pills({model,box}){let{left,right}=pillsOf(model,box.unit),middle=box.
y+box.h/2,draw=(pills,sign)=>pills.map((pill,at)=>{let wide=pillWidth(pill.text),x2=sign<0?box.x-5-wide:box.x+box.w+5,y2=middle+(at-pills.length/2)*15;return a2(
PillShape,{...pill,x:x2,y:y2,wide})});return a2("g",{children:[draw(left,-1),draw(right,1)]})}function FoldedShape({model,box,detail,marks,role}){let id2=-box.unit-
1,frame2=model.frame(id2),[forward,backward,saved,flopsForward,flopsBackward]=frame2.counts,[west,east]=[box.mid-GUTTER,box.mid+GUTTER],middle=box.y+box.h/2,band2=bandWidth(
model)(saved),stacked=frame2.kind==="loop",found=marks.matches?.get(id2),half=(side,x2,wide,count,products,title)=>a2("g",{class:`half ${side}${count?"":" empty"}`,
children:[stacked&&[6,3].map(away=>a2("rect",{class:"behind",x:x2+(side==="forward"?-away:away),y:box.y+away,width:wide,height:box.h,rx:6})),a2("rect",{x:x2,y:box.
y,width:wide,height:box.h,rx:6}),title&&a2("text",{class:"title",x:x2+10,y:detail.near?box.y+20:middle+detail.title*.35,"font-size":Math.min(detail.title,26),children:title}),
detail.near&&a2("text",{class:"soft",x:x2+10,y:box.y+(title?38:20),children:count?plural(count,"step"):"no step"}),detail.near&&products>0&&a2("text",{class:"so\
ft",x:x2+wide-10,y:box.y+38,"text-anchor":"end",children:[flops(products),"FLOP"]})]});return a2("g",{class:`frame folded ${frame2.kind} ${role??""} ${found?"ma\
tch":""}`,"data-unit":box.unit,role:"button","aria-expanded":"false","aria-label":titleOf(model,id2),children:[a2("rect",{class:box.level%2?"hit":"hit odd",x:box.
x,y:box.y,width:box.w,height:box.h}),half("forward",box.x,west-box.x,forward,flopsForward,fit(titleOf(model,id2),Math.floor((west-box.x-16)/(Math.min(detail.title,
26)*.58)))),half("backward",east,box.x+box.w-east,backward,flopsBackward),saved>0&&a2("path",{class:"band",d:`M${west} ${middle}H${east}`,"stroke-width":band2}),
saved>0&&detail.near&&a2("text",{class:"size",x:box.mid,y:middle-band2/2-4,children:bytes(saved)}),model.badFrames.has(id2)&&a2(BadMark,{x:west-36,y:box.y-6,bad:{
nan:1,inf:0}}),found&&detail.near&&a2(Count,{x:box.x+4,y:box.y-7,count:found})]})}function Count({x:x2,y:y2,count}){let wide=String(count).length*7+10;return a2(
"g",{class:"found",children:[a2("rect",{x:x2,y:y2,width:wide,height:14,rx:7}),a2("text",{x:x2+wide/2,y:y2+10.5,children:count})]})}function titleOf(model,id2){let frame2=model.
frame(id2),title=model.title(id2),label=model.text(frame2.label),turns=frame2.kind==="loop"?` × ${frame2.units.length}`:"";return`${title}${turns}${label&&label!==
title?`  ${label}`:""}`}function OpenShape({model,opened,box,detail,role}){let id2=-box.unit-1,frame2=model.frame(id2),wide=box.mid-GUTTER-box.x,size=Math.min(detail.
title,Math.max(12,Math.min(box.h*.1,60)));return a2("g",{class:`frame open ${frame2.kind} ${box.level%2?"odd":""} ${role??""}`,"data-unit":box.unit,children:[a2(
"rect",{class:"body",x:box.x,y:box.y,width:box.w,height:box.h,rx:8}),a2("rect",{class:"tint forward",x:box.x,y:box.y,width:wide,height:box.h,rx:8}),a2("rect",{class:"\
tint backward",x:box.mid+GUTTER,y:box.y,width:box.x+box.w-box.mid-GUTTER,height:box.h,rx:8}),a2("g",{"data-fold":id2,class:"head",role:"button","aria-expanded":"\
true","aria-label":`close ${titleOf(model,id2)}`,children:[a2("rect",{x:box.x,y:box.y,width:box.w,height:HEAD2,rx:8}),a2("text",{class:"title",x:box.x+10,y:box.
y+(size>13?size:16.5),"font-size":size,children:[detail.near&&a2("tspan",{class:"sign",children:"− "}),fit(titleOf(model,id2),Math.max(6,Math.floor(((frame2.kind===
"loop"?box.mid-66-box.x:box.w-130)-30)/(size*.58))))]}),detail.near&&frame2.counts[2]>0&&a2("text",{class:"soft",x:box.x+box.w-10,y:box.y+16.5,"text-anchor":"en\
d",children:`${bytes(frame2.counts[2])} saved`})]}),frame2.kind==="loop"&&detail.near&&a2(Stepper,{model,opened,id:id2,x:box.mid,y:box.y}),id2===0&&detail.near&&
a2(Entries,{model,role:"input",middle:box.mid-ENTRY,y:box.y-20}),id2===0&&detail.near&&a2(Entries,{model,role:"tangent",middle:box.mid+ENTRY,y:box.y+box.h+6})]})}
function Entries({model,role,middle,y:y2}){let ports=model.entering.filter(port=>port.role===role),texts=ports.slice(0,ports.length>3?2:3).map(port=>({text:fit(
model.text(port.name),16),title:`${role} ${model.text(port.name)} ${model.text(port.spec)}`}));ports.length>3&&texts.push({text:`+${ports.length-2}`,title:ports.
slice(2).map(port=>model.text(port.name)).join(`
`)});let x2=middle-texts.reduce((sum,one2)=>sum+pillWidth(one2.text)+4,-4)/2;return a2("g",{children:texts.map(one2=>{let wide=pillWidth(one2.text),left=x2;return x2+=
wide+4,a2(PillShape,{...one2,role,x:left,y:y2,wide})})})}function PillShape({x:x2,y:y2,wide,text:text2,title,role}){return a2("g",{class:`pill ${role}`,children:[
a2("title",{children:title}),a2("rect",{x:x2,y:y2+1,width:wide,height:13,rx:6.5}),a2("text",{x:x2+wide/2,y:y2+10.5,children:text2})]})}function Stepper({model,opened,
id:id2,x:x2,y:y2}){let turn=turnOf(model,opened,id2),{units}=model.frame(id2),shown=units[turn],arrow=(to,at,text2,label)=>a2("g",{class:`turn${to<0||to>=units.
length?" off":""}`,"data-loop":id2,"data-turn":to,role:"button","aria-label":label,children:[a2("rect",{x:at-11,y:y2+3,width:22,height:18,rx:4}),a2("text",{x:at,
y:y2+16.5,children:text2})]});return a2("g",{class:"stepper",children:[a2("title",{children:model.text(model.frame(-shown-1).name)}),a2("rect",{class:"plate",x:x2-
66,y:y2+2,width:132,height:20,rx:5}),arrow(turn-1,x2-54,"‹","previous turn"),a2("text",{x:x2,y:y2+16,children:`${turn+1} of ${units.length}`}),arrow(turn+1,x2+
54,"›","next turn")]})}function Drawn({model,opened,boxes,lines,detail,marks}){let all=[];for(let box of boxes){if(all.push(a2(BoxShape,{model,opened,box,detail,
marks},`b${box.unit}`)),box.kind!=="open")continue;let own=lines.get(-box.unit-1)??[];all.push(a2("g",{class:"lines",children:[...own].sort((a3,b)=>+(a3.side!==
"bridge")-+(b.side!=="bridge")).map(line=>a2(LineShape,{line,detail},line.d))},`l${box.unit}`))}return a2("g",{children:all})}function Tips(){let tip=side=>a2("\
marker",{id:`tip-${side}`,class:`tip ${side}`,viewBox:"0 0 8 8",refX:"7",refY:"4",markerWidth:"7",markerHeight:"7",markerUnits:"userSpaceOnUse",orient:"auto",children:a2(
"path",{d:"M0 .8L8 4L0 7.2Z"})});return a2("defs",{children:[tip("left"),tip("right")]})}function svgOf(picture,title){let{x:x2,y:y2,w:w2,h:h2,node}=picture.visible(),holder=document.createElementNS("http://www.w3.org/2000/svg","svg");Q([a2("title",
{children:title}),a2("rect",{class:"paper",x:x2,y:y2,width:w2,height:h2}),a2(Tips,{}),node],holder);let sizes={viewBox:`${x2} ${y2} ${w2} ${h2}`,width:String(Math.
round(w2)),height:String(Math.round(h2)),class:"picture"};for(let[name,value]of Object.entries(sizes))holder.setAttribute(name,value);let text2=new XMLSerializer().
serializeToString(holder).replace("</title>",`</title><style>${picture_default}</style>`);return Q(null,holder),`<?xml version="1.0" encoding="UTF-8"?>
${text2}
`}function download(name,text2){let address=URL.createObjectURL(new Blob([text2],{type:"image/svg+xml"})),link=document.createElement("a");link.href=address,link.
download=name,link.click(),setTimeout(()=>URL.revokeObjectURL(address),1e3)}async function copy(text2){try{return await navigator.clipboard.writeText(text2),"Th\
e link is copied."}catch{return text2}}var SIZES={"":1,b:1,k:1024,kib:1024,kb:1e3,m:1024**2,mib:1024**2,mb:1e6,g:1024**3,gib:1024**3,gb:1e9},PLACES=["names","operators","shapes","source lines","modul\
es","parameters"],FILTERS=[["op:mm","steps whose operator is mm (op:mm* for those that begin with it)"],["kind:matmul","matmul, convolution, attention, norm, so\
ftmax, reduction, pointwise, embedding, copy, creation, view, guard"],["is:saved","steps whose value is saved for the backward; also is:view, is:guard"],["side:\
backward","steps of the backward; also side:forward"],[">1MiB","steps that write more than 1 MiB; also <4KiB"],["module:layers.3","steps of this module and of t\
hose inside it"],["line:model.py:12","steps of a source line, or of a whole file"],["shape:3,4","values with these sizes next to one another"],["has:nan","steps\
 whose values were measured and have NaN; also has:inf"]],Searcher=class{constructor(model){this.model=model;this.lower=model.strings.map(text2=>text2.toLowerCase()),
this.lines=model.data.sources.map(source=>`${this.lower[source[0]]}:${source[1]}`),this.paths=model.data.frames.map((_2,id2)=>model.path(id2).toLowerCase()),this.
codes=model.data.sources.map(source=>`${this.lower[source[2]]} ${this.lower[source[3]]}`)}model;lower;lines;codes;paths;find(query){let words=[...query.toLowerCase().
matchAll(/"([^"]*)"|(\S+)/g)].map(match=>match[1]??match[2]).filter(Boolean);if(!words.length)return null;let tests=[],places=[],plain=[],problems=[];for(let word of words){
let filter2=this.filterOf(word);typeof filter2=="string"?problems.push(filter2):filter2?tests.push(filter2):(plain.push(word),places.push(this.placesOf(word)))}
let{count}=this.model,ranked=[[],[],[],[]],hits=new Array(PLACES.length).fill(0),all=places.length;if(!problems.length)for(let node=0;node<count;node++){let where=0;
if(tests.every(test=>test(node))){if(all){if(!places.every(column=>column[node]))continue;where=places[0][node];for(let place3=0;place3<PLACES.length;place3++)where&
1<<place3&&hits[place3]++}ranked[all?this.rank(node,plain[0],where):0].push(node)}}let frames=problems.length||tests.length?[[],[]]:this.framesOf(plain);return this.
sum(frames,ranked.flat(),hits,problems.join(" "))}sum([first2,others],steps,hits,problem){let{model}=this,within2=new Map,forward=0,own=new Int32Array(model.data.
frames.length);for(let node of steps)model.isForward(node)&&forward++,own[model.data.nodes.frame[node]]++;own.forEach((count,frame2)=>{if(count)for(let at=frame2;at>=
0;at=model.frame(at).parent)within2.set(at,(within2.get(at)??0)+count)});let counts=hits.map((count,place3)=>[PLACES[place3],count]).filter(one2=>one2[1]);return{
units:[...first2,...steps,...others],steps:new Set(steps),within:within2,counts,forward,problem}}rank(node,word,where){let{model}=this,names=[model.shorts[node].
toLowerCase(),this.lower[model.data.nodes.name[node]]];return names.includes(word)?0:names.some(name=>name.startsWith(word))?1:where&3?2:3}framesOf(words){let{model}=this,
found=[[],[]],seen=new Set;return model.data.frames.forEach((frame2,id2)=>{let own=this.lower[frame2.name],text2=`${this.paths[id2]} ${this.lower[frame2.label]}`;
id2===0||seen.has(model.alike[id2])||!words.every(word=>text2.includes(word))||words.some(word=>own.includes(word)||this.lower[frame2.label].includes(word)||word.
includes("."))&&(seen.add(model.alike[id2]),found[own.startsWith(words[0])||this.paths[id2]===words[0]?0:1].push(frameUnit(id2)))}),found}placesOf(word){let{model}=this,
{nodes,sources}=model.data,texts=Uint8Array.from(this.lower,text2=>Number(text2.includes(word))),lines=Uint8Array.from(sources,(source,at)=>(this.lines[at].includes(
word)||this.codes[at].includes(word)?8:0)|(texts[source[4]]?16:0)),ports=Uint8Array.from(model.entering,port=>texts[port.name]?32:0),found=new Uint8Array(model.
count);for(let node=0;node<model.count;node++){let where=texts[nodes.name[node]]|texts[nodes.op[node]]<<1|texts[nodes.spec[node]]<<2;nodes.source[node]>=0&&(where|=
lines[nodes.source[node]]);for(let value of nodes.inputs[node])value>=model.count&&(where|=ports[value-model.count]);found[node]=where}return found}filterOf(word){
let size=/^([<>])=?([\d.]+)([a-z]*)$/.exec(word);if(size){let unit=SIZES[size[3]];if(unit===void 0)return`“${word}”: the unit is B, KiB, MiB or GiB.`;let limit=Number(
size[2])*unit,{written}=this.model.data.nodes;return size[1]===">"?node=>written[node]>limit:node=>written[node]<limit}let[,key,value]=/^(op|kind|is|side|module|line|shape|has):(.*)$/.
exec(word)??[];return key?value?this.keyed(key,value):`“${word}” needs something behind the colon.`:null}keyed(key,value){let{model}=this,{nodes,sources}=model.
data,wrong=allowed=>`“${key}:${value}”: ${key} is one of ${allowed.join(", ")}.`;return{op:()=>{let begins=value.endsWith("*")?value.slice(0,-1):null,ops=model.
strings.map((_2,at)=>this.lower[at]);return node=>{let[name,op]=[model.shorts[node].toLowerCase(),ops[nodes.op[node]]];return begins===null?name===value||op===value||
op.endsWith(`.${value}`)||op.startsWith(`${value}.`):name.startsWith(begins)||op.startsWith(begins)}},kind:()=>{let kinds=[...new Set(model.kinds)].sort();return kinds.
includes(value)?node=>model.kinds[node]===value:wrong(kinds)},is:()=>({saved:node=>model.isSaved(node),view:node=>model.isView(node),guard:node=>model.kinds[node]===
"guard"})[value]??wrong(["saved","view","guard"]),side:()=>value==="forward"||value==="backward"?node=>model.isForward(node)===(value==="forward"):wrong(["forwa\
rd","backward"]),module:()=>{let begins=text2=>text2===value||text2.startsWith(`${value}.`)||text2.includes(`.${value}.`)||text2.endsWith(`.${value}`),inside=model.
strings.map((_2,at)=>begins(this.lower[at])),frames=this.paths.map(begins);return node=>frames[nodes.frame[node]]||nodes.source[node]>=0&&inside[sources[nodes.source[node]][4]]},
line:()=>{let ends=this.lines.map(line=>line===value||line.endsWith(`/${value}`)||line.startsWith(`${value}:`)||line.includes(`/${value}:`));return node=>nodes.
source[node]>=0&&ends[nodes.source[node]]},shape:()=>{let wanted=`,${value.replace(/[^\w,*]/g,"")},`,fits=model.strings.map(text2=>/\[/.test(text2)&&`,${text2.slice(
text2.indexOf("[")+1,text2.lastIndexOf("]")).replace(/\s/g,"")},`.includes(wanted));return node=>fits[nodes.spec[node]]},has:()=>model.data.stats?value==="nan"||
value==="inf"?node=>(model.bad.get(node)?.[value]??0)>0:wrong(["nan","inf"]):"This capture has no statistics of values, so has: finds nothing."}[key]()}};var SHOWN=50,Finder=class extends x{state={open:!1};input=M();componentDidMount(){this.props.mounted(this)}focus(){this.input.current.focus(),this.input.current.
select()}pressed=event=>{let{found,at,onGo,onLeave}=this.props,count=found?.units.length??0;if(event.stopPropagation(),event.key==="Escape")event.preventDefault(),
this.setState({open:!1}),onLeave();else if(count&&(event.key==="Enter"||event.key==="ArrowDown"||event.key==="ArrowUp")){event.preventDefault();let back=event.key===
"ArrowUp"||event.shiftKey;this.setState({open:event.key!=="Enter"}),onGo(at<0?back?count-1:0:(at+(back?count-1:1))%count)}};render({query,found,model,at,onQuery,
onGo}){return a2("div",{class:"finder",role:"search",onFocusOut:event=>{event.currentTarget.contains(event.relatedTarget)||this.setState({open:!1})},children:[a2(
"input",{ref:this.input,type:"search",value:query,placeholder:"search: name, operator, shape, line   /","aria-label":"search",spellcheck:!1,onInput:event=>{onQuery(
event.currentTarget.value),this.setState({open:!0})},onFocus:()=>this.setState({open:!0}),onKeyDown:this.pressed}),found&&a2("output",{class:"total",children:found.
problem?"?":whole(found.units.length)}),this.state.open&&a2("div",{class:"results",tabIndex:-1,children:found?a2(Results,{found,model,at,onGo}):a2(Help,{onQuery:query2=>{
onQuery(query2),this.focus()}})})]})}};function Help({onQuery}){return a2("div",{class:"help",children:[a2("p",{class:"soft",children:"Words are looked for in n\
ames, operators, shapes, source lines, modules and parameters. Filters can be put beside them:"}),a2("dl",{children:FILTERS.map(([word,meaning])=>[a2("dt",{children:a2(
"button",{class:"link",onClick:()=>onQuery(word),children:word})},word),a2("dd",{children:meaning},`${word} `)])})]})}function Results({found,model,at,onGo}){if(found.
problem)return a2("p",{class:"alarm",children:found.problem});let backward=found.steps.size-found.forward,frames=found.units.length-found.steps.size,from=Math.max(
0,Math.min(at-20,found.units.length-SHOWN));return a2("div",{children:[a2("p",{class:"soft counts",children:[[found.forward&&`${whole(found.forward)} forward`,backward&&
`${whole(backward)} backward`,frames&&plural(frames,"frame")].filter(Boolean).join(", ")||"Nothing has these words.",found.counts.length>0&&` · in ${found.counts.
map(([place3,count])=>`${place3} ${whole(count)}`).join(", ")}`]}),a2("ul",{children:found.units.slice(from,from+SHOWN).map((unit,index)=>a2(Result,{model,unit,
chosen:from+index===at,onGo:()=>onGo(from+index)},unit))}),found.units.length>SHOWN&&a2("p",{class:"soft",children:`${whole(from+1)} to ${whole(Math.min(found.units.
length,from+SHOWN))} of ${whole(found.units.length)}; Enter goes on`})]})}function Result({model,unit,chosen,onGo}){let press=event=>{event.preventDefault(),onGo()};
if(unit<0){let id2=-unit-1;return a2("li",{class:chosen?"chosen":"",onMouseDown:press,children:[a2("b",{children:a2("bdi",{children:model.path(id2)})}),a2("span",
{class:"soft",children:a2("bdi",{children:model.text(model.frame(id2).label)})})]})}return a2("li",{class:chosen?"chosen":"",onMouseDown:press,children:[a2("b",
{class:model.isForward(unit)?"forward":"backward",children:a2("bdi",{children:model.nameOf(unit)})}),a2("code",{children:model.specOf(unit)}),a2("span",{class:"\
soft",children:a2("bdi",{children:[model.moduleOf(unit),model.lineOf(unit)].filter(Boolean).join("  ")})})]})}var KEYS=[["/","search; Enter goes to the first, then to the next; Shift+Enter back; Escape leaves"],["↓ ↑","along the flow, as it is drawn: the forward run\
s down, the backward up"],["← →","to the partner in the other direction"],["Enter","open or close the selected frame, or the one around the selected step"],
["Shift+Enter","open everything inside the selected frame"],["[ ]","previous or next turn of the loop around the selection"],["n p","next or previous match of t\
he search"],["1 – 9","open every frame to that depth; 0 closes all but the first"],["+ − f a","zoom in, zoom out, fit, fit all"],["m c l o i d","memory, cod\
e, lines, operators, inputs and outputs, details"],["Escape","select nothing"],["wheel","move; with Ctrl or ⌘, zoom. Drag moves, too. On the time line: ← → move\
 the moment"]];function along(model,scene,unit,way){if(unit===null)return first(scene);let forward=unit<0||model.isForward(unit),own=visibleOf(model,scene,unit),
drawn=other=>other<model.count?visibleOf(model,scene,other):own,onward=forward===(way===1);for(let other of neighbours(model,unit,onward)){let shown=drawn(other),
box=scene.byUnit.get(shown);if(shown!==own&&box&&box.kind!=="open"&&!model.above(own).includes(-shown-1))return shown}return below(scene,own,way,forward)}function neighbours(model,unit,onward){
let steps=unit>=0?[unit]:[...model.inside(-unit-1)].filter(node=>model.isForward(node)),own=new Set(steps);return steps.flatMap(node=>onward?model.usersOf(node):
model.data.nodes.inputs[node]).filter(other=>other<model.count&&!own.has(other)).sort((a3,b)=>onward?a3-b:b-a3)}function below(scene,unit,way,forward){let here=scene.
byUnit.get(unit);if(!here)return first(scene);let[best,least]=[unit,1/0];for(let box of scene.boxes){let away=(box.y-here.y)*way;if(box.kind==="open"||away<=0||
box.kind==="node"&&box.mid<0!==forward)continue;let score=away+Math.abs(box.mid-here.mid)/20;score<least&&([best,least]=[box.unit,score])}return best}function first(scene){
return scene.boxes.find(box=>box.kind!=="open")?.unit??null}function across(model,unit,right){return unit===null||unit<0||model.isForward(unit)!==right?unit:(right?
model.pulled[unit]:model.data.nodes.partners[unit])[0]??unit}var HIGH2=64,TOP=16,Timeline=class extends x{state={wide:0};frame=M();watcher=new ResizeObserver(()=>this.setState({wide:this.frame.current.clientWidth}));shape=null;componentDidMount(){
this.watcher.observe(this.frame.current),this.setState({wide:this.frame.current.clientWidth})}componentWillUnmount(){this.watcher.disconnect()}shouldComponentUpdate(next,state){
let{model,moment,selected}=this.props;return next.model!==model||next.moment!==moment||next.selected!==selected||state.wide!==this.state.wide}get step(){return this.
state.wide/Math.max(1,this.props.model.count)}paths(){let{model}=this.props,{wide}=this.state;if(this.shape?.model===model&&this.shape.wide===wide)return this.shape.
paths;let{live}=model.data.memory,peak=Math.max(1,highest(live)),each2=Math.max(1,Math.floor(1/this.step/1.5)),area=(from,to)=>{if(from>=to)return"";let path=`M${(from*
this.step).toFixed(1)} ${TOP+HIGH2}`;for(let at=from;at<to;at+=each2){let end=Math.min(to,at+each2),y2=TOP+HIGH2*(1-highest(live,at,end)/peak);path+=`L${(at*this.
step).toFixed(1)} ${y2.toFixed(1)}L${(end*this.step).toFixed(1)} ${y2.toFixed(1)}`}return`${path}L${(to*this.step).toFixed(1)} ${TOP+HIGH2}Z`},paths=[area(0,model.
data.forward),area(model.data.forward,model.count)];return this.shape={model,wide,paths},paths}chosen=event=>{let at=Math.floor((event.clientX-this.frame.current.
getBoundingClientRect().left)/this.step);this.props.onMoment(Math.max(0,Math.min(this.props.model.count-1,at)))};pressed=event=>{let{model,moment,onMoment}=this.
props,by={ArrowRight:1,ArrowLeft:-1,PageDown:10,PageUp:-10}[event.key],now2=moment??model.data.memory.peak[0],next=event.key==="Home"?0:event.key==="End"?model.
count-1:by===void 0?null:now2+by*(event.shiftKey?10:1);next!==null&&(event.preventDefault(),event.stopPropagation(),onMoment(Math.max(0,Math.min(model.count-1,next))))};render({
model,moment,selected}){let{wide}=this.state,{memory,forward}=model.data,[peak,most]=memory.peak,[first2,second]=wide&&model.count?this.paths():["",""],at=node=>(node+
.5)*this.step,right=at(peak)>wide-330,now2=moment===null?"":`, ${bytes(memory.live[moment])} at step ${whole(moment+1)}`;return a2("div",{class:"timeline",ref:this.
frame,tabIndex:0,role:"slider","aria-label":"live bytes over forward and backward","aria-valuemin":0,"aria-valuemax":Math.max(0,model.count-1),"aria-valuenow":moment??
Math.max(0,peak),"aria-valuetext":`peak ${bytes(most)}${now2}`,onClick:this.chosen,onMouseMove:event=>event.buttons===1&&this.chosen(event),onKeyDown:this.pressed,
children:a2("svg",{width:wide,height:TOP+HIGH2+1,children:[a2("path",{class:"area forward",d:first2}),a2("path",{class:"area backward",d:second}),forward>0&&forward<
model.count&&a2("path",{class:"border",d:`M${forward*this.step} ${TOP}V${TOP+HIGH2}`}),peak>=0&&model.count>0&&a2("circle",{class:"peak",cx:at(peak),cy:TOP,r:3.5}),
peak>=0&&model.count>0&&a2("text",{class:"peak",x:at(peak)+(right?-8:8),y:11,"text-anchor":right?"end":"start",children:`peak ${bytes(most)} + ${bytes(memory.before)}\
 held by the caller`}),selected!==null&&selected>=0&&a2("path",{class:"cursor selected",d:`M${at(selected)} ${TOP-4}V${TOP+HIGH2}`}),moment!==null&&a2("path",{class:"\
cursor",d:`M${at(moment)} ${TOP-4}V${TOP+HIGH2}`})]})})}};function highest(row2,from=0,to=row2.length){let most=0;for(let at=from;at<to;at++)row2[at]>most&&(most=
row2[at]);return most}function holders(model,moment){return model.data.memory.spans.filter(([,first2,last])=>first2<=moment&&moment<=last).sort((a3,b)=>b[3]-a3[3])}
function Memory({model,moment,go,onMoment}){let{memory}=model.data,[peak,most]=memory.peak,now2=moment??peak;if(now2<0||!model.count)return a2("div",{class:"pan\
el",children:[a2("h2",{children:"Memory"}),a2("p",{class:"soft",children:"There is no step, so nothing is live."})]});let rows=holders(model,now2),listed2=rows.
reduce((sum,row2)=>sum+row2[3],0),columns=[{name:"value",value:row2=>model.nameOf(row2[0]),cell:row2=>a2(StepLink,{model,value:row2[0],go})},{name:"bytes",value:row2=>row2[3],
cell:row2=>bytes(row2[3])},{name:"as",value:row2=>model.text(row2[4]),cell:row2=>model.text(row2[4])},{name:"steps",value:row2=>row2[2]-row2[1]+1,cell:row2=>`${whole(
row2[1]+1)}–${row2[2]<model.count?whole(row2[2]+1):"end"}`}];return a2("div",{class:"panel",children:[a2("h2",{children:"Memory"}),a2("dl",{children:[a2("dt",
{children:"Step"}),a2("dd",{children:[`${whole(now2+1)} of ${whole(model.count)}: `,a2(StepLink,{model,value:now2,go})]}),a2("dt",{children:"Live"}),a2("dd",{children:[
`${bytes(memory.live[now2])} in ${whole(rows.length)} values`,Math.abs(listed2-memory.live[now2])>.5&&a2("span",{class:"soft",children:` (${bytes(listed2)} list\
ed below)`})]}),a2("dt",{children:"Peak"}),a2("dd",{children:[`${bytes(most)} at `,a2("button",{class:"link",onClick:()=>onMoment(peak),children:`step ${whole(peak+
1)}`})]}),a2("dt",{children:"Before"}),a2("dd",{children:`${bytes(memory.before)} of parameters, buffers and inputs, held by the caller`})]}),a2(Table,{columns,
rows,sort:[1,-1],empty:"Nothing is held at this step."},now2),a2("h3",{children:"Held by the caller throughout"}),a2(Table,{columns:columns.slice(0,3),rows:memory.
held,sort:[1,-1],empty:"Nothing."})]})}var xhtml="http://www.w3.org/1999/xhtml",namespaces={svg:"http://www.w3.org/2000/svg",xhtml,xlink:"http://www.w3.org/1999/xlink",xml:"http://www.w3.org/XML/1998\
/namespace",xmlns:"http://www.w3.org/2000/xmlns/"};function namespace(name){var prefix=name+="",i2=prefix.indexOf(":");return i2>=0&&(prefix=name.slice(0,i2))!==
"xmlns"&&(name=name.slice(i2+1)),namespaces.hasOwnProperty(prefix)?{space:namespaces[prefix],local:name}:name}function creatorInherit(name){return function(){var document2=this.
ownerDocument,uri=this.namespaceURI;return uri===xhtml&&document2.documentElement.namespaceURI===xhtml?document2.createElement(name):document2.createElementNS(uri,
name)}}function creatorFixed(fullname){return function(){return this.ownerDocument.createElementNS(fullname.space,fullname.local)}}function creator(name){var fullname=namespace(
name);return(fullname.local?creatorFixed:creatorInherit)(fullname)}function none(){}function selector(selector2){return selector2==null?none:function(){return this.
querySelector(selector2)}}function selection_select(select2){typeof select2!="function"&&(select2=selector(select2));for(var groups=this._groups,m2=groups.length,
subgroups=new Array(m2),j2=0;j2<m2;++j2)for(var group=groups[j2],n2=group.length,subgroup=subgroups[j2]=new Array(n2),node,subnode,i2=0;i2<n2;++i2)(node=group[i2])&&
(subnode=select2.call(node,node.__data__,i2,group))&&("__data__"in node&&(subnode.__data__=node.__data__),subgroup[i2]=subnode);return new Selection(subgroups,this.
_parents)}function array(x2){return x2==null?[]:Array.isArray(x2)?x2:Array.from(x2)}function empty(){return[]}function selectorAll(selector2){return selector2==
null?empty:function(){return this.querySelectorAll(selector2)}}function arrayAll(select2){return function(){return array(select2.apply(this,arguments))}}function selection_selectAll(select2){
typeof select2=="function"?select2=arrayAll(select2):select2=selectorAll(select2);for(var groups=this._groups,m2=groups.length,subgroups=[],parents=[],j2=0;j2<m2;++j2)
for(var group=groups[j2],n2=group.length,node,i2=0;i2<n2;++i2)(node=group[i2])&&(subgroups.push(select2.call(node,node.__data__,i2,group)),parents.push(node));return new Selection(
subgroups,parents)}function matcher(selector2){return function(){return this.matches(selector2)}}function childMatcher(selector2){return function(node){return node.
matches(selector2)}}var find=Array.prototype.find;function childFind(match){return function(){return find.call(this.children,match)}}function childFirst(){return this.
firstElementChild}function selection_selectChild(match){return this.select(match==null?childFirst:childFind(typeof match=="function"?match:childMatcher(match)))}
var filter=Array.prototype.filter;function children(){return Array.from(this.children)}function childrenFilter(match){return function(){return filter.call(this.
children,match)}}function selection_selectChildren(match){return this.selectAll(match==null?children:childrenFilter(typeof match=="function"?match:childMatcher(
match)))}function selection_filter(match){typeof match!="function"&&(match=matcher(match));for(var groups=this._groups,m2=groups.length,subgroups=new Array(m2),
j2=0;j2<m2;++j2)for(var group=groups[j2],n2=group.length,subgroup=subgroups[j2]=[],node,i2=0;i2<n2;++i2)(node=group[i2])&&match.call(node,node.__data__,i2,group)&&
subgroup.push(node);return new Selection(subgroups,this._parents)}function sparse(update){return new Array(update.length)}function selection_enter(){return new Selection(
this._enter||this._groups.map(sparse),this._parents)}function EnterNode(parent,datum2){this.ownerDocument=parent.ownerDocument,this.namespaceURI=parent.namespaceURI,
this._next=null,this._parent=parent,this.__data__=datum2}EnterNode.prototype={constructor:EnterNode,appendChild:function(child){return this._parent.insertBefore(
child,this._next)},insertBefore:function(child,next){return this._parent.insertBefore(child,next)},querySelector:function(selector2){return this._parent.querySelector(
selector2)},querySelectorAll:function(selector2){return this._parent.querySelectorAll(selector2)}};function constant(x2){return function(){return x2}}function bindIndex(parent,group,enter,update,exit,data){
for(var i2=0,node,groupLength=group.length,dataLength=data.length;i2<dataLength;++i2)(node=group[i2])?(node.__data__=data[i2],update[i2]=node):enter[i2]=new EnterNode(
parent,data[i2]);for(;i2<groupLength;++i2)(node=group[i2])&&(exit[i2]=node)}function bindKey(parent,group,enter,update,exit,data,key){var i2,node,nodeByKeyValue=new Map,
groupLength=group.length,dataLength=data.length,keyValues=new Array(groupLength),keyValue;for(i2=0;i2<groupLength;++i2)(node=group[i2])&&(keyValues[i2]=keyValue=
key.call(node,node.__data__,i2,group)+"",nodeByKeyValue.has(keyValue)?exit[i2]=node:nodeByKeyValue.set(keyValue,node));for(i2=0;i2<dataLength;++i2)keyValue=key.
call(parent,data[i2],i2,data)+"",(node=nodeByKeyValue.get(keyValue))?(update[i2]=node,node.__data__=data[i2],nodeByKeyValue.delete(keyValue)):enter[i2]=new EnterNode(
parent,data[i2]);for(i2=0;i2<groupLength;++i2)(node=group[i2])&&nodeByKeyValue.get(keyValues[i2])===node&&(exit[i2]=node)}function datum(node){return node.__data__}
function selection_data(value,key){if(!arguments.length)return Array.from(this,datum);var bind=key?bindKey:bindIndex,parents=this._parents,groups=this._groups;typeof value!=
"function"&&(value=constant(value));for(var m2=groups.length,update=new Array(m2),enter=new Array(m2),exit=new Array(m2),j2=0;j2<m2;++j2){var parent=parents[j2],
group=groups[j2],groupLength=group.length,data=arraylike(value.call(parent,parent&&parent.__data__,j2,parents)),dataLength=data.length,enterGroup=enter[j2]=new Array(
dataLength),updateGroup=update[j2]=new Array(dataLength),exitGroup=exit[j2]=new Array(groupLength);bind(parent,group,enterGroup,updateGroup,exitGroup,data,key);
for(var i0=0,i1=0,previous,next;i0<dataLength;++i0)if(previous=enterGroup[i0]){for(i0>=i1&&(i1=i0+1);!(next=updateGroup[i1])&&++i1<dataLength;);previous._next=next||
null}}return update=new Selection(update,parents),update._enter=enter,update._exit=exit,update}function arraylike(data){return typeof data=="object"&&"length"in
data?data:Array.from(data)}function selection_exit(){return new Selection(this._exit||this._groups.map(sparse),this._parents)}function selection_join(onenter,onupdate,onexit){
var enter=this.enter(),update=this,exit=this.exit();return typeof onenter=="function"?(enter=onenter(enter),enter&&(enter=enter.selection())):enter=enter.append(
onenter+""),onupdate!=null&&(update=onupdate(update),update&&(update=update.selection())),onexit==null?exit.remove():onexit(exit),enter&&update?enter.merge(update).
order():update}function selection_merge(context){for(var selection2=context.selection?context.selection():context,groups0=this._groups,groups1=selection2._groups,
m0=groups0.length,m1=groups1.length,m2=Math.min(m0,m1),merges=new Array(m0),j2=0;j2<m2;++j2)for(var group0=groups0[j2],group1=groups1[j2],n2=group0.length,merge=merges[j2]=
new Array(n2),node,i2=0;i2<n2;++i2)(node=group0[i2]||group1[i2])&&(merge[i2]=node);for(;j2<m0;++j2)merges[j2]=groups0[j2];return new Selection(merges,this._parents)}
function selection_order(){for(var groups=this._groups,j2=-1,m2=groups.length;++j2<m2;)for(var group=groups[j2],i2=group.length-1,next=group[i2],node;--i2>=0;)(node=
group[i2])&&(next&&node.compareDocumentPosition(next)^4&&next.parentNode.insertBefore(node,next),next=node);return this}function selection_sort(compare){compare||
(compare=ascending);function compareNode(a3,b){return a3&&b?compare(a3.__data__,b.__data__):!a3-!b}for(var groups=this._groups,m2=groups.length,sortgroups=new Array(
m2),j2=0;j2<m2;++j2){for(var group=groups[j2],n2=group.length,sortgroup=sortgroups[j2]=new Array(n2),node,i2=0;i2<n2;++i2)(node=group[i2])&&(sortgroup[i2]=node);
sortgroup.sort(compareNode)}return new Selection(sortgroups,this._parents).order()}function ascending(a3,b){return a3<b?-1:a3>b?1:a3>=b?0:NaN}function selection_call(){
var callback=arguments[0];return arguments[0]=this,callback.apply(null,arguments),this}function selection_nodes(){return Array.from(this)}function selection_node(){
for(var groups=this._groups,j2=0,m2=groups.length;j2<m2;++j2)for(var group=groups[j2],i2=0,n2=group.length;i2<n2;++i2){var node=group[i2];if(node)return node}return null}
function selection_size(){let size=0;for(let node of this)++size;return size}function selection_empty(){return!this.node()}function selection_each(callback){for(var groups=this.
_groups,j2=0,m2=groups.length;j2<m2;++j2)for(var group=groups[j2],i2=0,n2=group.length,node;i2<n2;++i2)(node=group[i2])&&callback.call(node,node.__data__,i2,group);
return this}function attrRemove(name){return function(){this.removeAttribute(name)}}function attrRemoveNS(fullname){return function(){this.removeAttributeNS(fullname.
space,fullname.local)}}function attrConstant(name,value){return function(){this.setAttribute(name,value)}}function attrConstantNS(fullname,value){return function(){
this.setAttributeNS(fullname.space,fullname.local,value)}}function attrFunction(name,value){return function(){var v2=value.apply(this,arguments);v2==null?this.removeAttribute(
name):this.setAttribute(name,v2)}}function attrFunctionNS(fullname,value){return function(){var v2=value.apply(this,arguments);v2==null?this.removeAttributeNS(fullname.
space,fullname.local):this.setAttributeNS(fullname.space,fullname.local,v2)}}function selection_attr(name,value){var fullname=namespace(name);if(arguments.length<
2){var node=this.node();return fullname.local?node.getAttributeNS(fullname.space,fullname.local):node.getAttribute(fullname)}return this.each((value==null?fullname.
local?attrRemoveNS:attrRemove:typeof value=="function"?fullname.local?attrFunctionNS:attrFunction:fullname.local?attrConstantNS:attrConstant)(fullname,value))}function defaultView(node){
return node.ownerDocument&&node.ownerDocument.defaultView||node.document&&node||node.defaultView}function styleRemove(name){return function(){this.style.removeProperty(
name)}}function styleConstant(name,value,priority){return function(){this.style.setProperty(name,value,priority)}}function styleFunction(name,value,priority){return function(){
var v2=value.apply(this,arguments);v2==null?this.style.removeProperty(name):this.style.setProperty(name,v2,priority)}}function selection_style(name,value,priority){
return arguments.length>1?this.each((value==null?styleRemove:typeof value=="function"?styleFunction:styleConstant)(name,value,priority??"")):styleValue(this.node(),
name)}function styleValue(node,name){return node.style.getPropertyValue(name)||defaultView(node).getComputedStyle(node,null).getPropertyValue(name)}function propertyRemove(name){
return function(){delete this[name]}}function propertyConstant(name,value){return function(){this[name]=value}}function propertyFunction(name,value){return function(){
var v2=value.apply(this,arguments);v2==null?delete this[name]:this[name]=v2}}function selection_property(name,value){return arguments.length>1?this.each((value==
null?propertyRemove:typeof value=="function"?propertyFunction:propertyConstant)(name,value)):this.node()[name]}function classArray(string2){return string2.trim().
split(/^|\s+/)}function classList(node){return node.classList||new ClassList(node)}function ClassList(node){this._node=node,this._names=classArray(node.getAttribute(
"class")||"")}ClassList.prototype={add:function(name){var i2=this._names.indexOf(name);i2<0&&(this._names.push(name),this._node.setAttribute("class",this._names.
join(" ")))},remove:function(name){var i2=this._names.indexOf(name);i2>=0&&(this._names.splice(i2,1),this._node.setAttribute("class",this._names.join(" ")))},contains:function(name){
return this._names.indexOf(name)>=0}};function classedAdd(node,names){for(var list2=classList(node),i2=-1,n2=names.length;++i2<n2;)list2.add(names[i2])}function classedRemove(node,names){
for(var list2=classList(node),i2=-1,n2=names.length;++i2<n2;)list2.remove(names[i2])}function classedTrue(names){return function(){classedAdd(this,names)}}function classedFalse(names){
return function(){classedRemove(this,names)}}function classedFunction(names,value){return function(){(value.apply(this,arguments)?classedAdd:classedRemove)(this,
names)}}function selection_classed(name,value){var names=classArray(name+"");if(arguments.length<2){for(var list2=classList(this.node()),i2=-1,n2=names.length;++i2<
n2;)if(!list2.contains(names[i2]))return!1;return!0}return this.each((typeof value=="function"?classedFunction:value?classedTrue:classedFalse)(names,value))}function textRemove(){
this.textContent=""}function textConstant(value){return function(){this.textContent=value}}function textFunction(value){return function(){var v2=value.apply(this,
arguments);this.textContent=v2??""}}function selection_text(value){return arguments.length?this.each(value==null?textRemove:(typeof value=="function"?textFunction:
textConstant)(value)):this.node().textContent}function htmlRemove(){this.innerHTML=""}function htmlConstant(value){return function(){this.innerHTML=value}}function htmlFunction(value){
return function(){var v2=value.apply(this,arguments);this.innerHTML=v2??""}}function selection_html(value){return arguments.length?this.each(value==null?htmlRemove:
(typeof value=="function"?htmlFunction:htmlConstant)(value)):this.node().innerHTML}function raise(){this.nextSibling&&this.parentNode.appendChild(this)}function selection_raise(){
return this.each(raise)}function lower(){this.previousSibling&&this.parentNode.insertBefore(this,this.parentNode.firstChild)}function selection_lower(){return this.
each(lower)}function selection_append(name){var create2=typeof name=="function"?name:creator(name);return this.select(function(){return this.appendChild(create2.
apply(this,arguments))})}function constantNull(){return null}function selection_insert(name,before){var create2=typeof name=="function"?name:creator(name),select2=before==
null?constantNull:typeof before=="function"?before:selector(before);return this.select(function(){return this.insertBefore(create2.apply(this,arguments),select2.
apply(this,arguments)||null)})}function remove(){var parent=this.parentNode;parent&&parent.removeChild(this)}function selection_remove(){return this.each(remove)}
function selection_cloneShallow(){var clone=this.cloneNode(!1),parent=this.parentNode;return parent?parent.insertBefore(clone,this.nextSibling):clone}function selection_cloneDeep(){
var clone=this.cloneNode(!0),parent=this.parentNode;return parent?parent.insertBefore(clone,this.nextSibling):clone}function selection_clone(deep){return this.select(
deep?selection_cloneDeep:selection_cloneShallow)}function selection_datum(value){return arguments.length?this.property("__data__",value):this.node().__data__}function contextListener(listener){
return function(event){listener.call(this,event,this.__data__)}}function parseTypenames(typenames){return typenames.trim().split(/^|\s+/).map(function(t4){var name="",
i2=t4.indexOf(".");return i2>=0&&(name=t4.slice(i2+1),t4=t4.slice(0,i2)),{type:t4,name}})}function onRemove(typename){return function(){var on=this.__on;if(on){
for(var j2=0,i2=-1,m2=on.length,o3;j2<m2;++j2)o3=on[j2],(!typename.type||o3.type===typename.type)&&o3.name===typename.name?this.removeEventListener(o3.type,o3.listener,
o3.options):on[++i2]=o3;++i2?on.length=i2:delete this.__on}}}function onAdd(typename,value,options){return function(){var on=this.__on,o3,listener=contextListener(
value);if(on){for(var j2=0,m2=on.length;j2<m2;++j2)if((o3=on[j2]).type===typename.type&&o3.name===typename.name){this.removeEventListener(o3.type,o3.listener,o3.
options),this.addEventListener(o3.type,o3.listener=listener,o3.options=options),o3.value=value;return}}this.addEventListener(typename.type,listener,options),o3=
{type:typename.type,name:typename.name,value,listener,options},on?on.push(o3):this.__on=[o3]}}function selection_on(typename,value,options){var typenames=parseTypenames(
typename+""),i2,n2=typenames.length,t4;if(arguments.length<2){var on=this.node().__on;if(on){for(var j2=0,m2=on.length,o3;j2<m2;++j2)for(i2=0,o3=on[j2];i2<n2;++i2)
if((t4=typenames[i2]).type===o3.type&&t4.name===o3.name)return o3.value}return}for(on=value?onAdd:onRemove,i2=0;i2<n2;++i2)this.each(on(typenames[i2],value,options));
return this}function dispatchEvent(node,type,params){var window2=defaultView(node),event=window2.CustomEvent;typeof event=="function"?event=new event(type,params):
(event=window2.document.createEvent("Event"),params?(event.initEvent(type,params.bubbles,params.cancelable),event.detail=params.detail):event.initEvent(type,!1,
!1)),node.dispatchEvent(event)}function dispatchConstant(type,params){return function(){return dispatchEvent(this,type,params)}}function dispatchFunction(type,params){
return function(){return dispatchEvent(this,type,params.apply(this,arguments))}}function selection_dispatch(type,params){return this.each((typeof params=="funct\
ion"?dispatchFunction:dispatchConstant)(type,params))}function*selection_iterator(){for(var groups=this._groups,j2=0,m2=groups.length;j2<m2;++j2)for(var group=groups[j2],
i2=0,n2=group.length,node;i2<n2;++i2)(node=group[i2])&&(yield node)}var root=[null];function Selection(groups,parents){this._groups=groups,this._parents=parents}
function selection(){return new Selection([[document.documentElement]],root)}function selection_selection(){return this}Selection.prototype=selection.prototype=
{constructor:Selection,select:selection_select,selectAll:selection_selectAll,selectChild:selection_selectChild,selectChildren:selection_selectChildren,filter:selection_filter,
data:selection_data,enter:selection_enter,exit:selection_exit,join:selection_join,merge:selection_merge,selection:selection_selection,order:selection_order,sort:selection_sort,
call:selection_call,nodes:selection_nodes,node:selection_node,size:selection_size,empty:selection_empty,each:selection_each,attr:selection_attr,style:selection_style,
property:selection_property,classed:selection_classed,text:selection_text,html:selection_html,raise:selection_raise,lower:selection_lower,append:selection_append,
insert:selection_insert,remove:selection_remove,clone:selection_clone,datum:selection_datum,on:selection_on,dispatch:selection_dispatch,[Symbol.iterator]:selection_iterator};
function select(selector2){return typeof selector2=="string"?new Selection([[document.querySelector(selector2)]],[document.documentElement]):new Selection([[selector2]],
root)}var nextId=0;function local(){return new Local}function Local(){this._="@"+(++nextId).toString(36)}Local.prototype=local.prototype={constructor:Local,get:function(node){
for(var id2=this._;!(id2 in node);)if(!(node=node.parentNode))return;return node[id2]},set:function(node,value){return node[this._]=value},remove:function(node){
return this._ in node&&delete node[this._]},toString:function(){return this._}};function sourceEvent(event){let sourceEvent2;for(;sourceEvent2=event.sourceEvent;)
event=sourceEvent2;return event}function pointer(event,node){if(event=sourceEvent(event),node===void 0&&(node=event.currentTarget),node){var svg=node.ownerSVGElement||
node;if(svg.createSVGPoint){var point=svg.createSVGPoint();return point.x=event.clientX,point.y=event.clientY,point=point.matrixTransform(node.getScreenCTM().inverse()),
[point.x,point.y]}if(node.getBoundingClientRect){var rect=node.getBoundingClientRect();return[event.clientX-rect.left-node.clientLeft,event.clientY-rect.top-node.
clientTop]}}return[event.pageX,event.pageY]}var noop={value:()=>{}};function dispatch(){for(var i2=0,n2=arguments.length,_2={},t4;i2<n2;++i2){if(!(t4=arguments[i2]+"")||t4 in _2||/[\s.]/.test(t4))throw new Error(
"illegal type: "+t4);_2[t4]=[]}return new Dispatch(_2)}function Dispatch(_2){this._=_2}function parseTypenames2(typenames,types){return typenames.trim().split(/^|\s+/).
map(function(t4){var name="",i2=t4.indexOf(".");if(i2>=0&&(name=t4.slice(i2+1),t4=t4.slice(0,i2)),t4&&!types.hasOwnProperty(t4))throw new Error("unknown type: "+
t4);return{type:t4,name}})}Dispatch.prototype=dispatch.prototype={constructor:Dispatch,on:function(typename,callback){var _2=this._,T2=parseTypenames2(typename+
"",_2),t4,i2=-1,n2=T2.length;if(arguments.length<2){for(;++i2<n2;)if((t4=(typename=T2[i2]).type)&&(t4=get(_2[t4],typename.name)))return t4;return}if(callback!=null&&
typeof callback!="function")throw new Error("invalid callback: "+callback);for(;++i2<n2;)if(t4=(typename=T2[i2]).type)_2[t4]=set(_2[t4],typename.name,callback);else if(callback==
null)for(t4 in _2)_2[t4]=set(_2[t4],typename.name,null);return this},copy:function(){var copy2={},_2=this._;for(var t4 in _2)copy2[t4]=_2[t4].slice();return new Dispatch(
copy2)},call:function(type,that){if((n2=arguments.length-2)>0)for(var args=new Array(n2),i2=0,n2,t4;i2<n2;++i2)args[i2]=arguments[i2+2];if(!this._.hasOwnProperty(
type))throw new Error("unknown type: "+type);for(t4=this._[type],i2=0,n2=t4.length;i2<n2;++i2)t4[i2].value.apply(that,args)},apply:function(type,that,args){if(!this.
_.hasOwnProperty(type))throw new Error("unknown type: "+type);for(var t4=this._[type],i2=0,n2=t4.length;i2<n2;++i2)t4[i2].value.apply(that,args)}};function get(type,name){
for(var i2=0,n2=type.length,c2;i2<n2;++i2)if((c2=type[i2]).name===name)return c2.value}function set(type,name,callback){for(var i2=0,n2=type.length;i2<n2;++i2)if(type[i2].
name===name){type[i2]=noop,type=type.slice(0,i2).concat(type.slice(i2+1));break}return callback!=null&&type.push({name,value:callback}),type}var nonpassivecapture={capture:!0,passive:!1};function noevent(event){event.preventDefault(),event.stopImmediatePropagation()}function nodrag(view){var root2=view.document.documentElement,selection2=select(
view).on("dragstart.drag",noevent,nonpassivecapture);"onselectstart"in root2?selection2.on("selectstart.drag",noevent,nonpassivecapture):(root2.__noselect=root2.
style.MozUserSelect,root2.style.MozUserSelect="none")}function yesdrag(view,noclick){var root2=view.document.documentElement,selection2=select(view).on("dragsta\
rt.drag",null);noclick&&(selection2.on("click.drag",noevent,nonpassivecapture),setTimeout(function(){selection2.on("click.drag",null)},0)),"onselectstart"in root2?
selection2.on("selectstart.drag",null):(root2.style.MozUserSelect=root2.__noselect,delete root2.__noselect)}function DragEvent(type,{sourceEvent:sourceEvent2,subject,target,identifier,active,x:x2,y:y2,dx,dy,dispatch:dispatch2}){Object.defineProperties(this,{type:{value:type,
enumerable:!0,configurable:!0},sourceEvent:{value:sourceEvent2,enumerable:!0,configurable:!0},subject:{value:subject,enumerable:!0,configurable:!0},target:{value:target,
enumerable:!0,configurable:!0},identifier:{value:identifier,enumerable:!0,configurable:!0},active:{value:active,enumerable:!0,configurable:!0},x:{value:x2,enumerable:!0,
configurable:!0},y:{value:y2,enumerable:!0,configurable:!0},dx:{value:dx,enumerable:!0,configurable:!0},dy:{value:dy,enumerable:!0,configurable:!0},_:{value:dispatch2}})}
DragEvent.prototype.on=function(){var value=this._.on.apply(this._,arguments);return value===this._?this:value};function define(constructor,factory,prototype){constructor.prototype=factory.prototype=prototype,prototype.constructor=constructor}function extend(parent,definition){
var prototype=Object.create(parent.prototype);for(var key in definition)prototype[key]=definition[key];return prototype}function Color(){}var darker=.7,brighter=1/
darker,reI="\\s*([+-]?\\d+)\\s*",reN="\\s*([+-]?(?:\\d*\\.)?\\d+(?:[eE][+-]?\\d+)?)\\s*",reP="\\s*([+-]?(?:\\d*\\.)?\\d+(?:[eE][+-]?\\d+)?)%\\s*",reHex=/^#([0-9a-f]{3,8})$/,
reRgbInteger=new RegExp(`^rgb\\(${reI},${reI},${reI}\\)$`),reRgbPercent=new RegExp(`^rgb\\(${reP},${reP},${reP}\\)$`),reRgbaInteger=new RegExp(`^rgba\\(${reI},${reI}\
,${reI},${reN}\\)$`),reRgbaPercent=new RegExp(`^rgba\\(${reP},${reP},${reP},${reN}\\)$`),reHslPercent=new RegExp(`^hsl\\(${reN},${reP},${reP}\\)$`),reHslaPercent=new RegExp(
`^hsla\\(${reN},${reP},${reP},${reN}\\)$`),named={aliceblue:15792383,antiquewhite:16444375,aqua:65535,aquamarine:8388564,azure:15794175,beige:16119260,bisque:16770244,
black:0,blanchedalmond:16772045,blue:255,blueviolet:9055202,brown:10824234,burlywood:14596231,cadetblue:6266528,chartreuse:8388352,chocolate:13789470,coral:16744272,
cornflowerblue:6591981,cornsilk:16775388,crimson:14423100,cyan:65535,darkblue:139,darkcyan:35723,darkgoldenrod:12092939,darkgray:11119017,darkgreen:25600,darkgrey:11119017,
darkkhaki:12433259,darkmagenta:9109643,darkolivegreen:5597999,darkorange:16747520,darkorchid:10040012,darkred:9109504,darksalmon:15308410,darkseagreen:9419919,darkslateblue:4734347,
darkslategray:3100495,darkslategrey:3100495,darkturquoise:52945,darkviolet:9699539,deeppink:16716947,deepskyblue:49151,dimgray:6908265,dimgrey:6908265,dodgerblue:2003199,
firebrick:11674146,floralwhite:16775920,forestgreen:2263842,fuchsia:16711935,gainsboro:14474460,ghostwhite:16316671,gold:16766720,goldenrod:14329120,gray:8421504,
green:32768,greenyellow:11403055,grey:8421504,honeydew:15794160,hotpink:16738740,indianred:13458524,indigo:4915330,ivory:16777200,khaki:15787660,lavender:15132410,
lavenderblush:16773365,lawngreen:8190976,lemonchiffon:16775885,lightblue:11393254,lightcoral:15761536,lightcyan:14745599,lightgoldenrodyellow:16448210,lightgray:13882323,
lightgreen:9498256,lightgrey:13882323,lightpink:16758465,lightsalmon:16752762,lightseagreen:2142890,lightskyblue:8900346,lightslategray:7833753,lightslategrey:7833753,
lightsteelblue:11584734,lightyellow:16777184,lime:65280,limegreen:3329330,linen:16445670,magenta:16711935,maroon:8388608,mediumaquamarine:6737322,mediumblue:205,
mediumorchid:12211667,mediumpurple:9662683,mediumseagreen:3978097,mediumslateblue:8087790,mediumspringgreen:64154,mediumturquoise:4772300,mediumvioletred:13047173,
midnightblue:1644912,mintcream:16121850,mistyrose:16770273,moccasin:16770229,navajowhite:16768685,navy:128,oldlace:16643558,olive:8421376,olivedrab:7048739,orange:16753920,
orangered:16729344,orchid:14315734,palegoldenrod:15657130,palegreen:10025880,paleturquoise:11529966,palevioletred:14381203,papayawhip:16773077,peachpuff:16767673,
peru:13468991,pink:16761035,plum:14524637,powderblue:11591910,purple:8388736,rebeccapurple:6697881,red:16711680,rosybrown:12357519,royalblue:4286945,saddlebrown:9127187,
salmon:16416882,sandybrown:16032864,seagreen:3050327,seashell:16774638,sienna:10506797,silver:12632256,skyblue:8900331,slateblue:6970061,slategray:7372944,slategrey:7372944,
snow:16775930,springgreen:65407,steelblue:4620980,tan:13808780,teal:32896,thistle:14204888,tomato:16737095,turquoise:4251856,violet:15631086,wheat:16113331,white:16777215,
whitesmoke:16119285,yellow:16776960,yellowgreen:10145074};define(Color,color,{copy(channels){return Object.assign(new this.constructor,this,channels)},displayable(){
return this.rgb().displayable()},hex:color_formatHex,formatHex:color_formatHex,formatHex8:color_formatHex8,formatHsl:color_formatHsl,formatRgb:color_formatRgb,toString:color_formatRgb});
function color_formatHex(){return this.rgb().formatHex()}function color_formatHex8(){return this.rgb().formatHex8()}function color_formatHsl(){return hslConvert(
this).formatHsl()}function color_formatRgb(){return this.rgb().formatRgb()}function color(format){var m2,l2;return format=(format+"").trim().toLowerCase(),(m2=reHex.
exec(format))?(l2=m2[1].length,m2=parseInt(m2[1],16),l2===6?rgbn(m2):l2===3?new Rgb(m2>>8&15|m2>>4&240,m2>>4&15|m2&240,(m2&15)<<4|m2&15,1):l2===8?rgba(m2>>24&255,
m2>>16&255,m2>>8&255,(m2&255)/255):l2===4?rgba(m2>>12&15|m2>>8&240,m2>>8&15|m2>>4&240,m2>>4&15|m2&240,((m2&15)<<4|m2&15)/255):null):(m2=reRgbInteger.exec(format))?
new Rgb(m2[1],m2[2],m2[3],1):(m2=reRgbPercent.exec(format))?new Rgb(m2[1]*255/100,m2[2]*255/100,m2[3]*255/100,1):(m2=reRgbaInteger.exec(format))?rgba(m2[1],m2[2],
m2[3],m2[4]):(m2=reRgbaPercent.exec(format))?rgba(m2[1]*255/100,m2[2]*255/100,m2[3]*255/100,m2[4]):(m2=reHslPercent.exec(format))?hsla(m2[1],m2[2]/100,m2[3]/100,
1):(m2=reHslaPercent.exec(format))?hsla(m2[1],m2[2]/100,m2[3]/100,m2[4]):named.hasOwnProperty(format)?rgbn(named[format]):format==="transparent"?new Rgb(NaN,NaN,
NaN,0):null}function rgbn(n2){return new Rgb(n2>>16&255,n2>>8&255,n2&255,1)}function rgba(r2,g2,b,a3){return a3<=0&&(r2=g2=b=NaN),new Rgb(r2,g2,b,a3)}function rgbConvert(o3){
return o3 instanceof Color||(o3=color(o3)),o3?(o3=o3.rgb(),new Rgb(o3.r,o3.g,o3.b,o3.opacity)):new Rgb}function rgb(r2,g2,b,opacity){return arguments.length===1?
rgbConvert(r2):new Rgb(r2,g2,b,opacity??1)}function Rgb(r2,g2,b,opacity){this.r=+r2,this.g=+g2,this.b=+b,this.opacity=+opacity}define(Rgb,rgb,extend(Color,{brighter(k){
return k=k==null?brighter:Math.pow(brighter,k),new Rgb(this.r*k,this.g*k,this.b*k,this.opacity)},darker(k){return k=k==null?darker:Math.pow(darker,k),new Rgb(this.
r*k,this.g*k,this.b*k,this.opacity)},rgb(){return this},clamp(){return new Rgb(clampi(this.r),clampi(this.g),clampi(this.b),clampa(this.opacity))},displayable(){
return-.5<=this.r&&this.r<255.5&&-.5<=this.g&&this.g<255.5&&-.5<=this.b&&this.b<255.5&&0<=this.opacity&&this.opacity<=1},hex:rgb_formatHex,formatHex:rgb_formatHex,
formatHex8:rgb_formatHex8,formatRgb:rgb_formatRgb,toString:rgb_formatRgb}));function rgb_formatHex(){return`#${hex(this.r)}${hex(this.g)}${hex(this.b)}`}function rgb_formatHex8(){
return`#${hex(this.r)}${hex(this.g)}${hex(this.b)}${hex((isNaN(this.opacity)?1:this.opacity)*255)}`}function rgb_formatRgb(){let a3=clampa(this.opacity);return`${a3===
1?"rgb(":"rgba("}${clampi(this.r)}, ${clampi(this.g)}, ${clampi(this.b)}${a3===1?")":`, ${a3})`}`}function clampa(opacity){return isNaN(opacity)?1:Math.max(0,Math.
min(1,opacity))}function clampi(value){return Math.max(0,Math.min(255,Math.round(value)||0))}function hex(value){return value=clampi(value),(value<16?"0":"")+value.
toString(16)}function hsla(h2,s2,l2,a3){return a3<=0?h2=s2=l2=NaN:l2<=0||l2>=1?h2=s2=NaN:s2<=0&&(h2=NaN),new Hsl(h2,s2,l2,a3)}function hslConvert(o3){if(o3 instanceof
Hsl)return new Hsl(o3.h,o3.s,o3.l,o3.opacity);if(o3 instanceof Color||(o3=color(o3)),!o3)return new Hsl;if(o3 instanceof Hsl)return o3;o3=o3.rgb();var r2=o3.r/255,
g2=o3.g/255,b=o3.b/255,min=Math.min(r2,g2,b),max=Math.max(r2,g2,b),h2=NaN,s2=max-min,l2=(max+min)/2;return s2?(r2===max?h2=(g2-b)/s2+(g2<b)*6:g2===max?h2=(b-r2)/
s2+2:h2=(r2-g2)/s2+4,s2/=l2<.5?max+min:2-max-min,h2*=60):s2=l2>0&&l2<1?0:h2,new Hsl(h2,s2,l2,o3.opacity)}function hsl(h2,s2,l2,opacity){return arguments.length===
1?hslConvert(h2):new Hsl(h2,s2,l2,opacity??1)}function Hsl(h2,s2,l2,opacity){this.h=+h2,this.s=+s2,this.l=+l2,this.opacity=+opacity}define(Hsl,hsl,extend(Color,
{brighter(k){return k=k==null?brighter:Math.pow(brighter,k),new Hsl(this.h,this.s,this.l*k,this.opacity)},darker(k){return k=k==null?darker:Math.pow(darker,k),new Hsl(
this.h,this.s,this.l*k,this.opacity)},rgb(){var h2=this.h%360+(this.h<0)*360,s2=isNaN(h2)||isNaN(this.s)?0:this.s,l2=this.l,m2=l2+(l2<.5?l2:1-l2)*s2,m1=2*l2-m2;
return new Rgb(hsl2rgb(h2>=240?h2-240:h2+120,m1,m2),hsl2rgb(h2,m1,m2),hsl2rgb(h2<120?h2+240:h2-120,m1,m2),this.opacity)},clamp(){return new Hsl(clamph(this.h),clampt(
this.s),clampt(this.l),clampa(this.opacity))},displayable(){return(0<=this.s&&this.s<=1||isNaN(this.s))&&0<=this.l&&this.l<=1&&0<=this.opacity&&this.opacity<=1},
formatHsl(){let a3=clampa(this.opacity);return`${a3===1?"hsl(":"hsla("}${clamph(this.h)}, ${clampt(this.s)*100}%, ${clampt(this.l)*100}%${a3===1?")":`, ${a3})`}`}}));
function clamph(value){return value=(value||0)%360,value<0?value+360:value}function clampt(value){return Math.max(0,Math.min(1,value||0))}function hsl2rgb(h2,m1,m2){
return(h2<60?m1+(m2-m1)*h2/60:h2<180?m2:h2<240?m1+(m2-m1)*(240-h2)/60:m1)*255}var radians=Math.PI/180,degrees=180/Math.PI,K2=18,Xn=.96422,Yn=1,Zn=.82521,t0=4/29,
t1=6/29,t2=3*t1*t1,t3=t1*t1*t1;function labConvert(o3){if(o3 instanceof Lab)return new Lab(o3.l,o3.a,o3.b,o3.opacity);if(o3 instanceof Hcl)return hcl2lab(o3);o3 instanceof
Rgb||(o3=rgbConvert(o3));var r2=rgb2lrgb(o3.r),g2=rgb2lrgb(o3.g),b=rgb2lrgb(o3.b),y2=xyz2lab((.2225045*r2+.7168786*g2+.0606169*b)/Yn),x2,z2;return r2===g2&&g2===
b?x2=z2=y2:(x2=xyz2lab((.4360747*r2+.3850649*g2+.1430804*b)/Xn),z2=xyz2lab((.0139322*r2+.0971045*g2+.7141733*b)/Zn)),new Lab(116*y2-16,500*(x2-y2),200*(y2-z2),o3.
opacity)}function lab(l2,a3,b,opacity){return arguments.length===1?labConvert(l2):new Lab(l2,a3,b,opacity??1)}function Lab(l2,a3,b,opacity){this.l=+l2,this.a=+a3,this.b=
+b,this.opacity=+opacity}define(Lab,lab,extend(Color,{brighter(k){return new Lab(this.l+K2*(k??1),this.a,this.b,this.opacity)},darker(k){return new Lab(this.l-K2*
(k??1),this.a,this.b,this.opacity)},rgb(){var y2=(this.l+16)/116,x2=isNaN(this.a)?y2:y2+this.a/500,z2=isNaN(this.b)?y2:y2-this.b/200;return x2=Xn*lab2xyz(x2),y2=
Yn*lab2xyz(y2),z2=Zn*lab2xyz(z2),new Rgb(lrgb2rgb(3.1338561*x2-1.6168667*y2-.4906146*z2),lrgb2rgb(-.9787684*x2+1.9161415*y2+.033454*z2),lrgb2rgb(.0719453*x2-.2289914*
y2+1.4052427*z2),this.opacity)}}));function xyz2lab(t4){return t4>t3?Math.pow(t4,1/3):t4/t2+t0}function lab2xyz(t4){return t4>t1?t4*t4*t4:t2*(t4-t0)}function lrgb2rgb(x2){
return 255*(x2<=.0031308?12.92*x2:1.055*Math.pow(x2,1/2.4)-.055)}function rgb2lrgb(x2){return(x2/=255)<=.04045?x2/12.92:Math.pow((x2+.055)/1.055,2.4)}function hclConvert(o3){
if(o3 instanceof Hcl)return new Hcl(o3.h,o3.c,o3.l,o3.opacity);if(o3 instanceof Lab||(o3=labConvert(o3)),o3.a===0&&o3.b===0)return new Hcl(NaN,0<o3.l&&o3.l<100?
0:NaN,o3.l,o3.opacity);var h2=Math.atan2(o3.b,o3.a)*degrees;return new Hcl(h2<0?h2+360:h2,Math.sqrt(o3.a*o3.a+o3.b*o3.b),o3.l,o3.opacity)}function hcl(h2,c2,l2,opacity){return arguments.length===1?hclConvert(h2):new Hcl(h2,c2,l2,opacity??1)}function Hcl(h2,c2,l2,opacity){this.h=+h2,this.c=+c2,this.
l=+l2,this.opacity=+opacity}function hcl2lab(o3){if(isNaN(o3.h))return new Lab(o3.l,0,0,o3.opacity);var h2=o3.h*radians;return new Lab(o3.l,Math.cos(h2)*o3.c,Math.
sin(h2)*o3.c,o3.opacity)}define(Hcl,hcl,extend(Color,{brighter(k){return new Hcl(this.h,this.c,this.l+K2*(k??1),this.opacity)},darker(k){return new Hcl(this.h,this.
c,this.l-K2*(k??1),this.opacity)},rgb(){return hcl2lab(this).rgb()}}));var A2=-.14861,B2=1.78277,C2=-.29227,D2=-.90649,E2=1.97294,ED=E2*D2,EB=E2*B2,BC_DA=B2*C2-
D2*A2;function cubehelixConvert(o3){if(o3 instanceof Cubehelix)return new Cubehelix(o3.h,o3.s,o3.l,o3.opacity);o3 instanceof Rgb||(o3=rgbConvert(o3));var r2=o3.
r/255,g2=o3.g/255,b=o3.b/255,l2=(BC_DA*b+ED*r2-EB*g2)/(BC_DA+ED-EB),bl=b-l2,k=(E2*(g2-l2)-C2*bl)/D2,s2=Math.sqrt(k*k+bl*bl)/(E2*l2*(1-l2)),h2=s2?Math.atan2(k,bl)*
degrees-120:NaN;return new Cubehelix(h2<0?h2+360:h2,s2,l2,o3.opacity)}function cubehelix(h2,s2,l2,opacity){return arguments.length===1?cubehelixConvert(h2):new Cubehelix(
h2,s2,l2,opacity??1)}function Cubehelix(h2,s2,l2,opacity){this.h=+h2,this.s=+s2,this.l=+l2,this.opacity=+opacity}define(Cubehelix,cubehelix,extend(Color,{brighter(k){
return k=k==null?brighter:Math.pow(brighter,k),new Cubehelix(this.h,this.s,this.l*k,this.opacity)},darker(k){return k=k==null?darker:Math.pow(darker,k),new Cubehelix(
this.h,this.s,this.l*k,this.opacity)},rgb(){var h2=isNaN(this.h)?0:(this.h+120)*radians,l2=+this.l,a3=isNaN(this.s)?0:this.s*l2*(1-l2),cosh2=Math.cos(h2),sinh2=Math.
sin(h2);return new Rgb(255*(l2+a3*(A2*cosh2+B2*sinh2)),255*(l2+a3*(C2*cosh2+D2*sinh2)),255*(l2+a3*(E2*cosh2)),this.opacity)}}));function basis(t12,v0,v1,v2,v3){var t22=t12*t12,t32=t22*t12;return((1-3*t12+3*t22-t32)*v0+(4-6*t22+3*t32)*v1+(1+3*t12+3*t22-3*t32)*v2+t32*v3)/6}function basis$1(values){
var n2=values.length-1;return function(t4){var i2=t4<=0?t4=0:t4>=1?(t4=1,n2-1):Math.floor(t4*n2),v1=values[i2],v2=values[i2+1],v0=i2>0?values[i2-1]:2*v1-v2,v3=i2<
n2-1?values[i2+2]:2*v2-v1;return basis((t4-i2/n2)*n2,v0,v1,v2,v3)}}function basisClosed(values){var n2=values.length;return function(t4){var i2=Math.floor(((t4%=
1)<0?++t4:t4)*n2),v0=values[(i2+n2-1)%n2],v1=values[i2%n2],v2=values[(i2+1)%n2],v3=values[(i2+2)%n2];return basis((t4-i2/n2)*n2,v0,v1,v2,v3)}}var constant2=x2=>()=>x2;
function linear(a3,d2){return function(t4){return a3+t4*d2}}function exponential(a3,b,y2){return a3=Math.pow(a3,y2),b=Math.pow(b,y2)-a3,y2=1/y2,function(t4){return Math.
pow(a3+t4*b,y2)}}function hue$1(a3,b){var d2=b-a3;return d2?linear(a3,d2>180||d2<-180?d2-360*Math.round(d2/360):d2):constant2(isNaN(a3)?b:a3)}function gamma(y2){
return(y2=+y2)==1?nogamma:function(a3,b){return b-a3?exponential(a3,b,y2):constant2(isNaN(a3)?b:a3)}}function nogamma(a3,b){var d2=b-a3;return d2?linear(a3,d2):
constant2(isNaN(a3)?b:a3)}var rgb2=(function rgbGamma(y2){var color2=gamma(y2);function rgb3(start3,end){var r2=color2((start3=rgb(start3)).r,(end=rgb(end)).r),
g2=color2(start3.g,end.g),b=color2(start3.b,end.b),opacity=nogamma(start3.opacity,end.opacity);return function(t4){return start3.r=r2(t4),start3.g=g2(t4),start3.
b=b(t4),start3.opacity=opacity(t4),start3+""}}return rgb3.gamma=rgbGamma,rgb3})(1);function rgbSpline(spline){return function(colors){var n2=colors.length,r2=new Array(
n2),g2=new Array(n2),b=new Array(n2),i2,color2;for(i2=0;i2<n2;++i2)color2=rgb(colors[i2]),r2[i2]=color2.r||0,g2[i2]=color2.g||0,b[i2]=color2.b||0;return r2=spline(
r2),g2=spline(g2),b=spline(b),color2.opacity=1,function(t4){return color2.r=r2(t4),color2.g=g2(t4),color2.b=b(t4),color2+""}}}var rgbBasis=rgbSpline(basis$1),rgbBasisClosed=rgbSpline(
basisClosed);function number(a3,b){return a3=+a3,b=+b,function(t4){return a3*(1-t4)+b*t4}}var reA=/[-+]?(?:\d+\.?\d*|\.?\d+)(?:[eE][-+]?\d+)?/g,reB=new RegExp(reA.source,"g");function zero(b){return function(){return b}}function one(b){return function(t4){
return b(t4)+""}}function string(a3,b){var bi=reA.lastIndex=reB.lastIndex=0,am,bm,bs,i2=-1,s2=[],q2=[];for(a3=a3+"",b=b+"";(am=reA.exec(a3))&&(bm=reB.exec(b));)
(bs=bm.index)>bi&&(bs=b.slice(bi,bs),s2[i2]?s2[i2]+=bs:s2[++i2]=bs),(am=am[0])===(bm=bm[0])?s2[i2]?s2[i2]+=bm:s2[++i2]=bm:(s2[++i2]=null,q2.push({i:i2,x:number(
am,bm)})),bi=reB.lastIndex;return bi<b.length&&(bs=b.slice(bi),s2[i2]?s2[i2]+=bs:s2[++i2]=bs),s2.length<2?q2[0]?one(q2[0].x):zero(b):(b=q2.length,function(t4){for(var i3=0,
o3;i3<b;++i3)s2[(o3=q2[i3]).i]=o3.x(t4);return s2.join("")})}var degrees2=180/Math.PI,identity={translateX:0,translateY:0,rotate:0,skewX:0,scaleX:1,scaleY:1};function decompose(a3,b,c2,d2,e2,f3){var scaleX,scaleY,skewX;return(scaleX=
Math.sqrt(a3*a3+b*b))&&(a3/=scaleX,b/=scaleX),(skewX=a3*c2+b*d2)&&(c2-=a3*skewX,d2-=b*skewX),(scaleY=Math.sqrt(c2*c2+d2*d2))&&(c2/=scaleY,d2/=scaleY,skewX/=scaleY),
a3*d2<b*c2&&(a3=-a3,b=-b,skewX=-skewX,scaleX=-scaleX),{translateX:e2,translateY:f3,rotate:Math.atan2(b,a3)*degrees2,skewX:Math.atan(skewX)*degrees2,scaleX,scaleY}}
var svgNode;function parseCss(value){let m2=new(typeof DOMMatrix=="function"?DOMMatrix:WebKitCSSMatrix)(value+"");return m2.isIdentity?identity:decompose(m2.a,m2.
b,m2.c,m2.d,m2.e,m2.f)}function parseSvg(value){return value==null||(svgNode||(svgNode=document.createElementNS("http://www.w3.org/2000/svg","g")),svgNode.setAttribute(
"transform",value),!(value=svgNode.transform.baseVal.consolidate()))?identity:(value=value.matrix,decompose(value.a,value.b,value.c,value.d,value.e,value.f))}function interpolateTransform(parse2,pxComma,pxParen,degParen){
function pop(s2){return s2.length?s2.pop()+" ":""}function translate(xa,ya,xb,yb,s2,q2){if(xa!==xb||ya!==yb){var i2=s2.push("translate(",null,pxComma,null,pxParen);
q2.push({i:i2-4,x:number(xa,xb)},{i:i2-2,x:number(ya,yb)})}else(xb||yb)&&s2.push("translate("+xb+pxComma+yb+pxParen)}function rotate(a3,b,s2,q2){a3!==b?(a3-b>180?
b+=360:b-a3>180&&(a3+=360),q2.push({i:s2.push(pop(s2)+"rotate(",null,degParen)-2,x:number(a3,b)})):b&&s2.push(pop(s2)+"rotate("+b+degParen)}function skewX(a3,b,s2,q2){
a3!==b?q2.push({i:s2.push(pop(s2)+"skewX(",null,degParen)-2,x:number(a3,b)}):b&&s2.push(pop(s2)+"skewX("+b+degParen)}function scale(xa,ya,xb,yb,s2,q2){if(xa!==xb||
ya!==yb){var i2=s2.push(pop(s2)+"scale(",null,",",null,")");q2.push({i:i2-4,x:number(xa,xb)},{i:i2-2,x:number(ya,yb)})}else(xb!==1||yb!==1)&&s2.push(pop(s2)+"sc\
ale("+xb+","+yb+")")}return function(a3,b){var s2=[],q2=[];return a3=parse2(a3),b=parse2(b),translate(a3.translateX,a3.translateY,b.translateX,b.translateY,s2,q2),
rotate(a3.rotate,b.rotate,s2,q2),skewX(a3.skewX,b.skewX,s2,q2),scale(a3.scaleX,a3.scaleY,b.scaleX,b.scaleY,s2,q2),a3=b=null,function(t4){for(var i2=-1,n2=q2.length,
o3;++i2<n2;)s2[(o3=q2[i2]).i]=o3.x(t4);return s2.join("")}}}var interpolateTransformCss=interpolateTransform(parseCss,"px, ","px)","deg)"),interpolateTransformSvg=interpolateTransform(
parseSvg,", ",")",")"),epsilon2=1e-12;function cosh(x2){return((x2=Math.exp(x2))+1/x2)/2}function sinh(x2){return((x2=Math.exp(x2))-1/x2)/2}function tanh(x2){return((x2=
Math.exp(2*x2))-1)/(x2+1)}var zoom=(function zoomRho(rho,rho2,rho4){function zoom3(p0,p1){var ux0=p0[0],uy0=p0[1],w0=p0[2],ux1=p1[0],uy1=p1[1],w1=p1[2],dx=ux1-ux0,
dy=uy1-uy0,d2=dx*dx+dy*dy,i2,S2;if(d2<epsilon2)S2=Math.log(w1/w0)/rho,i2=function(t4){return[ux0+t4*dx,uy0+t4*dy,w0*Math.exp(rho*t4*S2)]};else{var d1=Math.sqrt(
d2),b02=(w1*w1-w0*w0+rho4*d2)/(2*w0*rho2*d1),b12=(w1*w1-w0*w0-rho4*d2)/(2*w1*rho2*d1),r0=Math.log(Math.sqrt(b02*b02+1)-b02),r1=Math.log(Math.sqrt(b12*b12+1)-b12);
S2=(r1-r0)/rho,i2=function(t4){var s2=t4*S2,coshr0=cosh(r0),u2=w0/(rho2*d1)*(coshr0*tanh(rho*s2+r0)-sinh(r0));return[ux0+u2*dx,uy0+u2*dy,w0*coshr0/cosh(rho*s2+r0)]}}
return i2.duration=Math.abs(S2)*1e3*rho/Math.SQRT2,i2}return zoom3.rho=function(_2){var _1=Math.max(.001,+_2),_22=_1*_1,_4=_22*_22;return zoomRho(_1,_22,_4)},zoom3})(
Math.SQRT2,2,4);function hsl2(hue){return function(start3,end){var h2=hue((start3=hsl(start3)).h,(end=hsl(end)).h),s2=nogamma(start3.s,end.s),l2=nogamma(start3.
l,end.l),opacity=nogamma(start3.opacity,end.opacity);return function(t4){return start3.h=h2(t4),start3.s=s2(t4),start3.l=l2(t4),start3.opacity=opacity(t4),start3+
""}}}var hsl_default=hsl2(hue$1),hslLong=hsl2(nogamma);function hcl2(hue){return function(start3,end){var h2=hue((start3=hcl(start3)).h,(end=hcl(end)).h),c2=nogamma(start3.c,end.c),l2=nogamma(start3.l,end.l),opacity=nogamma(
start3.opacity,end.opacity);return function(t4){return start3.h=h2(t4),start3.c=c2(t4),start3.l=l2(t4),start3.opacity=opacity(t4),start3+""}}}var hcl_default=hcl2(
hue$1),hclLong=hcl2(nogamma);function cubehelix2(hue){return(function cubehelixGamma(y2){y2=+y2;function cubehelix3(start3,end){var h2=hue((start3=cubehelix(start3)).
h,(end=cubehelix(end)).h),s2=nogamma(start3.s,end.s),l2=nogamma(start3.l,end.l),opacity=nogamma(start3.opacity,end.opacity);return function(t4){return start3.h=
h2(t4),start3.s=s2(t4),start3.l=l2(Math.pow(t4,y2)),start3.opacity=opacity(t4),start3+""}}return cubehelix3.gamma=cubehelixGamma,cubehelix3})(1)}var cubehelix_default=cubehelix2(
hue$1),cubehelixLong=cubehelix2(nogamma);var frame=0,timeout$1=0,interval$1=0,pokeDelay=1e3,taskHead,taskTail,clockLast=0,clockNow=0,clockSkew=0,clock=typeof performance=="object"&&performance.now?performance:
Date,setFrame=typeof window=="object"&&window.requestAnimationFrame?window.requestAnimationFrame.bind(window):function(f3){setTimeout(f3,17)};function now(){return clockNow||
(setFrame(clearNow),clockNow=clock.now()+clockSkew)}function clearNow(){clockNow=0}function Timer(){this._call=this._time=this._next=null}Timer.prototype=timer.
prototype={constructor:Timer,restart:function(callback,delay,time){if(typeof callback!="function")throw new TypeError("callback is not a function");time=(time==
null?now():+time)+(delay==null?0:+delay),!this._next&&taskTail!==this&&(taskTail?taskTail._next=this:taskHead=this,taskTail=this),this._call=callback,this._time=
time,sleep()},stop:function(){this._call&&(this._call=null,this._time=1/0,sleep())}};function timer(callback,delay,time){var t4=new Timer;return t4.restart(callback,
delay,time),t4}function timerFlush(){now(),++frame;for(var t4=taskHead,e2;t4;)(e2=clockNow-t4._time)>=0&&t4._call.call(void 0,e2),t4=t4._next;--frame}function wake(){
clockNow=(clockLast=clock.now())+clockSkew,frame=timeout$1=0;try{timerFlush()}finally{frame=0,nap(),clockNow=0}}function poke(){var now2=clock.now(),delay=now2-
clockLast;delay>pokeDelay&&(clockSkew-=delay,clockLast=now2)}function nap(){for(var t02,t12=taskHead,t22,time=1/0;t12;)t12._call?(time>t12._time&&(time=t12._time),
t02=t12,t12=t12._next):(t22=t12._next,t12._next=null,t12=t02?t02._next=t22:taskHead=t22);taskTail=t02,sleep(time)}function sleep(time){if(!frame){timeout$1&&(timeout$1=
clearTimeout(timeout$1));var delay=time-clockNow;delay>24?(time<1/0&&(timeout$1=setTimeout(wake,Math.ceil(time-clock.now()-clockSkew)+1)),interval$1&&(interval$1=
clearInterval(interval$1))):(interval$1||(clockLast=clock.now(),interval$1=setInterval(poke,pokeDelay)),frame=1,setFrame(wake))}}function timeout(callback,delay,time){
var t4=new Timer;return delay=delay==null?0:+delay,t4.restart(elapsed=>{t4.stop(),callback(elapsed+delay)},delay,time),t4}function cubicInOut(t4){return((t4*=2)<=1?t4*t4*t4:(t4-=2)*t4*t4+2)/2}var exponent=3,polyIn=(function custom(e2){e2=+e2;function polyIn2(t4){return Math.pow(t4,
e2)}return polyIn2.exponent=custom,polyIn2})(exponent),polyOut=(function custom2(e2){e2=+e2;function polyOut2(t4){return 1-Math.pow(1-t4,e2)}return polyOut2.exponent=
custom2,polyOut2})(exponent),polyInOut=(function custom3(e2){e2=+e2;function polyInOut2(t4){return((t4*=2)<=1?Math.pow(t4,e2):2-Math.pow(2-t4,e2))/2}return polyInOut2.
exponent=custom3,polyInOut2})(exponent),pi=Math.PI,halfPi=pi/2;function tpmt(x2){return(Math.pow(2,-10*x2)-.0009765625)*1.0009775171065494}var b1=4/11,b2=6/11,b3=8/11,b4=3/4,b5=9/11,b6=10/11,b7=15/16,b8=21/22,b9=63/64,b0=1/b1/b1;var overshoot=1.70158,backIn=(function custom4(s2){s2=+s2;function backIn2(t4){return(t4=+t4)*t4*(s2*(t4-1)+t4)}return backIn2.overshoot=custom4,backIn2})(overshoot),
backOut=(function custom5(s2){s2=+s2;function backOut2(t4){return--t4*t4*((t4+1)*s2+t4)+1}return backOut2.overshoot=custom5,backOut2})(overshoot),backInOut=(function custom6(s2){
s2=+s2;function backInOut2(t4){return((t4*=2)<1?t4*t4*((s2+1)*t4-s2):(t4-=2)*t4*((s2+1)*t4+s2)+2)/2}return backInOut2.overshoot=custom6,backInOut2})(overshoot),
tau=2*Math.PI,amplitude=1,period=.3,elasticIn=(function custom7(a3,p2){var s2=Math.asin(1/(a3=Math.max(1,a3)))*(p2/=tau);function elasticIn2(t4){return a3*tpmt(
- --t4)*Math.sin((s2-t4)/p2)}return elasticIn2.amplitude=function(a4){return custom7(a4,p2*tau)},elasticIn2.period=function(p3){return custom7(a3,p3)},elasticIn2})(
amplitude,period),elasticOut=(function custom8(a3,p2){var s2=Math.asin(1/(a3=Math.max(1,a3)))*(p2/=tau);function elasticOut2(t4){return 1-a3*tpmt(t4=+t4)*Math.sin(
(t4+s2)/p2)}return elasticOut2.amplitude=function(a4){return custom8(a4,p2*tau)},elasticOut2.period=function(p3){return custom8(a3,p3)},elasticOut2})(amplitude,
period),elasticInOut=(function custom9(a3,p2){var s2=Math.asin(1/(a3=Math.max(1,a3)))*(p2/=tau);function elasticInOut2(t4){return((t4=t4*2-1)<0?a3*tpmt(-t4)*Math.
sin((s2-t4)/p2):2-a3*tpmt(t4)*Math.sin((s2+t4)/p2))/2}return elasticInOut2.amplitude=function(a4){return custom9(a4,p2*tau)},elasticInOut2.period=function(p3){return custom9(
a3,p3)},elasticInOut2})(amplitude,period);var emptyOn=dispatch("start","end","cancel","interrupt"),emptyTween=[],CREATED=0,SCHEDULED=1,STARTING=2,STARTED=3,RUNNING=4,ENDING=5,ENDED=6;function schedule(node,name,id2,index,group,timing){
var schedules=node.__transition;if(!schedules)node.__transition={};else if(id2 in schedules)return;create(node,id2,{name,index,group,on:emptyOn,tween:emptyTween,
time:timing.time,delay:timing.delay,duration:timing.duration,ease:timing.ease,timer:null,state:CREATED})}function init(node,id2){var schedule2=get2(node,id2);if(schedule2.
state>CREATED)throw new Error("too late; already scheduled");return schedule2}function set2(node,id2){var schedule2=get2(node,id2);if(schedule2.state>STARTED)throw new Error(
"too late; already running");return schedule2}function get2(node,id2){var schedule2=node.__transition;if(!schedule2||!(schedule2=schedule2[id2]))throw new Error(
"transition not found");return schedule2}function create(node,id2,self){var schedules=node.__transition,tween;schedules[id2]=self,self.timer=timer(schedule2,0,self.
time);function schedule2(elapsed){self.state=SCHEDULED,self.timer.restart(start3,self.delay,self.time),self.delay<=elapsed&&start3(elapsed-self.delay)}function start3(elapsed){
var i2,j2,n2,o3;if(self.state!==SCHEDULED)return stop();for(i2 in schedules)if(o3=schedules[i2],o3.name===self.name){if(o3.state===STARTED)return timeout(start3);
o3.state===RUNNING?(o3.state=ENDED,o3.timer.stop(),o3.on.call("interrupt",node,node.__data__,o3.index,o3.group),delete schedules[i2]):+i2<id2&&(o3.state=ENDED,o3.
timer.stop(),o3.on.call("cancel",node,node.__data__,o3.index,o3.group),delete schedules[i2])}if(timeout(function(){self.state===STARTED&&(self.state=RUNNING,self.
timer.restart(tick,self.delay,self.time),tick(elapsed))}),self.state=STARTING,self.on.call("start",node,node.__data__,self.index,self.group),self.state===STARTING){
for(self.state=STARTED,tween=new Array(n2=self.tween.length),i2=0,j2=-1;i2<n2;++i2)(o3=self.tween[i2].value.call(node,node.__data__,self.index,self.group))&&(tween[++j2]=
o3);tween.length=j2+1}}function tick(elapsed){for(var t4=elapsed<self.duration?self.ease.call(null,elapsed/self.duration):(self.timer.restart(stop),self.state=ENDING,
1),i2=-1,n2=tween.length;++i2<n2;)tween[i2].call(node,t4);self.state===ENDING&&(self.on.call("end",node,node.__data__,self.index,self.group),stop())}function stop(){
self.state=ENDED,self.timer.stop(),delete schedules[id2];for(var i2 in schedules)return;delete node.__transition}}function interrupt(node,name){var schedules=node.
__transition,schedule2,active,empty2=!0,i2;if(schedules){name=name==null?null:name+"";for(i2 in schedules){if((schedule2=schedules[i2]).name!==name){empty2=!1;continue}
active=schedule2.state>STARTING&&schedule2.state<ENDING,schedule2.state=ENDED,schedule2.timer.stop(),schedule2.on.call(active?"interrupt":"cancel",node,node.__data__,
schedule2.index,schedule2.group),delete schedules[i2]}empty2&&delete node.__transition}}function selection_interrupt(name){return this.each(function(){interrupt(
this,name)})}function tweenRemove(id2,name){var tween0,tween1;return function(){var schedule2=set2(this,id2),tween=schedule2.tween;if(tween!==tween0){tween1=tween0=
tween;for(var i2=0,n2=tween1.length;i2<n2;++i2)if(tween1[i2].name===name){tween1=tween1.slice(),tween1.splice(i2,1);break}}schedule2.tween=tween1}}function tweenFunction(id2,name,value){
var tween0,tween1;if(typeof value!="function")throw new Error;return function(){var schedule2=set2(this,id2),tween=schedule2.tween;if(tween!==tween0){tween1=(tween0=
tween).slice();for(var t4={name,value},i2=0,n2=tween1.length;i2<n2;++i2)if(tween1[i2].name===name){tween1[i2]=t4;break}i2===n2&&tween1.push(t4)}schedule2.tween=
tween1}}function transition_tween(name,value){var id2=this._id;if(name+="",arguments.length<2){for(var tween=get2(this.node(),id2).tween,i2=0,n2=tween.length,t4;i2<
n2;++i2)if((t4=tween[i2]).name===name)return t4.value;return null}return this.each((value==null?tweenRemove:tweenFunction)(id2,name,value))}function tweenValue(transition2,name,value){
var id2=transition2._id;return transition2.each(function(){var schedule2=set2(this,id2);(schedule2.value||(schedule2.value={}))[name]=value.apply(this,arguments)}),
function(node){return get2(node,id2).value[name]}}function interpolate(a3,b){var c2;return(typeof b=="number"?number:b instanceof color?rgb2:(c2=color(b))?(b=c2,
rgb2):string)(a3,b)}function attrRemove2(name){return function(){this.removeAttribute(name)}}function attrRemoveNS2(fullname){return function(){this.removeAttributeNS(
fullname.space,fullname.local)}}function attrConstant2(name,interpolate2,value1){var string00,string1=value1+"",interpolate0;return function(){var string0=this.
getAttribute(name);return string0===string1?null:string0===string00?interpolate0:interpolate0=interpolate2(string00=string0,value1)}}function attrConstantNS2(fullname,interpolate2,value1){
var string00,string1=value1+"",interpolate0;return function(){var string0=this.getAttributeNS(fullname.space,fullname.local);return string0===string1?null:string0===
string00?interpolate0:interpolate0=interpolate2(string00=string0,value1)}}function attrFunction2(name,interpolate2,value){var string00,string10,interpolate0;return function(){
var string0,value1=value(this),string1;return value1==null?void this.removeAttribute(name):(string0=this.getAttribute(name),string1=value1+"",string0===string1?
null:string0===string00&&string1===string10?interpolate0:(string10=string1,interpolate0=interpolate2(string00=string0,value1)))}}function attrFunctionNS2(fullname,interpolate2,value){
var string00,string10,interpolate0;return function(){var string0,value1=value(this),string1;return value1==null?void this.removeAttributeNS(fullname.space,fullname.
local):(string0=this.getAttributeNS(fullname.space,fullname.local),string1=value1+"",string0===string1?null:string0===string00&&string1===string10?interpolate0:
(string10=string1,interpolate0=interpolate2(string00=string0,value1)))}}function transition_attr(name,value){var fullname=namespace(name),i2=fullname==="transfo\
rm"?interpolateTransformSvg:interpolate;return this.attrTween(name,typeof value=="function"?(fullname.local?attrFunctionNS2:attrFunction2)(fullname,i2,tweenValue(
this,"attr."+name,value)):value==null?(fullname.local?attrRemoveNS2:attrRemove2)(fullname):(fullname.local?attrConstantNS2:attrConstant2)(fullname,i2,value))}function attrInterpolate(name,i2){
return function(t4){this.setAttribute(name,i2.call(this,t4))}}function attrInterpolateNS(fullname,i2){return function(t4){this.setAttributeNS(fullname.space,fullname.
local,i2.call(this,t4))}}function attrTweenNS(fullname,value){var t02,i0;function tween(){var i2=value.apply(this,arguments);return i2!==i0&&(t02=(i0=i2)&&attrInterpolateNS(
fullname,i2)),t02}return tween._value=value,tween}function attrTween(name,value){var t02,i0;function tween(){var i2=value.apply(this,arguments);return i2!==i0&&
(t02=(i0=i2)&&attrInterpolate(name,i2)),t02}return tween._value=value,tween}function transition_attrTween(name,value){var key="attr."+name;if(arguments.length<2)
return(key=this.tween(key))&&key._value;if(value==null)return this.tween(key,null);if(typeof value!="function")throw new Error;var fullname=namespace(name);return this.
tween(key,(fullname.local?attrTweenNS:attrTween)(fullname,value))}function delayFunction(id2,value){return function(){init(this,id2).delay=+value.apply(this,arguments)}}
function delayConstant(id2,value){return value=+value,function(){init(this,id2).delay=value}}function transition_delay(value){var id2=this._id;return arguments.
length?this.each((typeof value=="function"?delayFunction:delayConstant)(id2,value)):get2(this.node(),id2).delay}function durationFunction(id2,value){return function(){
set2(this,id2).duration=+value.apply(this,arguments)}}function durationConstant(id2,value){return value=+value,function(){set2(this,id2).duration=value}}function transition_duration(value){
var id2=this._id;return arguments.length?this.each((typeof value=="function"?durationFunction:durationConstant)(id2,value)):get2(this.node(),id2).duration}function easeConstant(id2,value){
if(typeof value!="function")throw new Error;return function(){set2(this,id2).ease=value}}function transition_ease(value){var id2=this._id;return arguments.length?
this.each(easeConstant(id2,value)):get2(this.node(),id2).ease}function easeVarying(id2,value){return function(){var v2=value.apply(this,arguments);if(typeof v2!=
"function")throw new Error;set2(this,id2).ease=v2}}function transition_easeVarying(value){if(typeof value!="function")throw new Error;return this.each(easeVarying(
this._id,value))}function transition_filter(match){typeof match!="function"&&(match=matcher(match));for(var groups=this._groups,m2=groups.length,subgroups=new Array(
m2),j2=0;j2<m2;++j2)for(var group=groups[j2],n2=group.length,subgroup=subgroups[j2]=[],node,i2=0;i2<n2;++i2)(node=group[i2])&&match.call(node,node.__data__,i2,group)&&
subgroup.push(node);return new Transition(subgroups,this._parents,this._name,this._id)}function transition_merge(transition2){if(transition2._id!==this._id)throw new Error;
for(var groups0=this._groups,groups1=transition2._groups,m0=groups0.length,m1=groups1.length,m2=Math.min(m0,m1),merges=new Array(m0),j2=0;j2<m2;++j2)for(var group0=groups0[j2],
group1=groups1[j2],n2=group0.length,merge=merges[j2]=new Array(n2),node,i2=0;i2<n2;++i2)(node=group0[i2]||group1[i2])&&(merge[i2]=node);for(;j2<m0;++j2)merges[j2]=
groups0[j2];return new Transition(merges,this._parents,this._name,this._id)}function start(name){return(name+"").trim().split(/^|\s+/).every(function(t4){var i2=t4.
indexOf(".");return i2>=0&&(t4=t4.slice(0,i2)),!t4||t4==="start"})}function onFunction(id2,name,listener){var on0,on1,sit=start(name)?init:set2;return function(){
var schedule2=sit(this,id2),on=schedule2.on;on!==on0&&(on1=(on0=on).copy()).on(name,listener),schedule2.on=on1}}function transition_on(name,listener){var id2=this.
_id;return arguments.length<2?get2(this.node(),id2).on.on(name):this.each(onFunction(id2,name,listener))}function removeFunction(id2){return function(){var parent=this.
parentNode;for(var i2 in this.__transition)if(+i2!==id2)return;parent&&parent.removeChild(this)}}function transition_remove(){return this.on("end.remove",removeFunction(
this._id))}function transition_select(select2){var name=this._name,id2=this._id;typeof select2!="function"&&(select2=selector(select2));for(var groups=this._groups,
m2=groups.length,subgroups=new Array(m2),j2=0;j2<m2;++j2)for(var group=groups[j2],n2=group.length,subgroup=subgroups[j2]=new Array(n2),node,subnode,i2=0;i2<n2;++i2)
(node=group[i2])&&(subnode=select2.call(node,node.__data__,i2,group))&&("__data__"in node&&(subnode.__data__=node.__data__),subgroup[i2]=subnode,schedule(subgroup[i2],
name,id2,i2,subgroup,get2(node,id2)));return new Transition(subgroups,this._parents,name,id2)}function transition_selectAll(select2){var name=this._name,id2=this.
_id;typeof select2!="function"&&(select2=selectorAll(select2));for(var groups=this._groups,m2=groups.length,subgroups=[],parents=[],j2=0;j2<m2;++j2)for(var group=groups[j2],
n2=group.length,node,i2=0;i2<n2;++i2)if(node=group[i2]){for(var children2=select2.call(node,node.__data__,i2,group),child,inherit2=get2(node,id2),k=0,l2=children2.
length;k<l2;++k)(child=children2[k])&&schedule(child,name,id2,k,children2,inherit2);subgroups.push(children2),parents.push(node)}return new Transition(subgroups,
parents,name,id2)}var Selection2=selection.prototype.constructor;function transition_selection(){return new Selection2(this._groups,this._parents)}function styleNull(name,interpolate2){
var string00,string10,interpolate0;return function(){var string0=styleValue(this,name),string1=(this.style.removeProperty(name),styleValue(this,name));return string0===
string1?null:string0===string00&&string1===string10?interpolate0:interpolate0=interpolate2(string00=string0,string10=string1)}}function styleRemove2(name){return function(){
this.style.removeProperty(name)}}function styleConstant2(name,interpolate2,value1){var string00,string1=value1+"",interpolate0;return function(){var string0=styleValue(
this,name);return string0===string1?null:string0===string00?interpolate0:interpolate0=interpolate2(string00=string0,value1)}}function styleFunction2(name,interpolate2,value){
var string00,string10,interpolate0;return function(){var string0=styleValue(this,name),value1=value(this),string1=value1+"";return value1==null&&(string1=value1=
(this.style.removeProperty(name),styleValue(this,name))),string0===string1?null:string0===string00&&string1===string10?interpolate0:(string10=string1,interpolate0=
interpolate2(string00=string0,value1))}}function styleMaybeRemove(id2,name){var on0,on1,listener0,key="style."+name,event="end."+key,remove2;return function(){var schedule2=set2(
this,id2),on=schedule2.on,listener=schedule2.value[key]==null?remove2||(remove2=styleRemove2(name)):void 0;(on!==on0||listener0!==listener)&&(on1=(on0=on).copy()).
on(event,listener0=listener),schedule2.on=on1}}function transition_style(name,value,priority){var i2=(name+="")=="transform"?interpolateTransformCss:interpolate;
return value==null?this.styleTween(name,styleNull(name,i2)).on("end.style."+name,styleRemove2(name)):typeof value=="function"?this.styleTween(name,styleFunction2(
name,i2,tweenValue(this,"style."+name,value))).each(styleMaybeRemove(this._id,name)):this.styleTween(name,styleConstant2(name,i2,value),priority).on("end.style."+
name,null)}function styleInterpolate(name,i2,priority){return function(t4){this.style.setProperty(name,i2.call(this,t4),priority)}}function styleTween(name,value,priority){
var t4,i0;function tween(){var i2=value.apply(this,arguments);return i2!==i0&&(t4=(i0=i2)&&styleInterpolate(name,i2,priority)),t4}return tween._value=value,tween}
function transition_styleTween(name,value,priority){var key="style."+(name+="");if(arguments.length<2)return(key=this.tween(key))&&key._value;if(value==null)return this.
tween(key,null);if(typeof value!="function")throw new Error;return this.tween(key,styleTween(name,value,priority??""))}function textConstant2(value){return function(){
this.textContent=value}}function textFunction2(value){return function(){var value1=value(this);this.textContent=value1??""}}function transition_text(value){return this.
tween("text",typeof value=="function"?textFunction2(tweenValue(this,"text",value)):textConstant2(value==null?"":value+""))}function textInterpolate(i2){return function(t4){
this.textContent=i2.call(this,t4)}}function textTween(value){var t02,i0;function tween(){var i2=value.apply(this,arguments);return i2!==i0&&(t02=(i0=i2)&&textInterpolate(
i2)),t02}return tween._value=value,tween}function transition_textTween(value){var key="text";if(arguments.length<1)return(key=this.tween(key))&&key._value;if(value==
null)return this.tween(key,null);if(typeof value!="function")throw new Error;return this.tween(key,textTween(value))}function transition_transition(){for(var name=this.
_name,id0=this._id,id1=newId(),groups=this._groups,m2=groups.length,j2=0;j2<m2;++j2)for(var group=groups[j2],n2=group.length,node,i2=0;i2<n2;++i2)if(node=group[i2]){
var inherit2=get2(node,id0);schedule(node,name,id1,i2,group,{time:inherit2.time+inherit2.delay+inherit2.duration,delay:0,duration:inherit2.duration,ease:inherit2.
ease})}return new Transition(groups,this._parents,name,id1)}function transition_end(){var on0,on1,that=this,id2=that._id,size=that.size();return new Promise(function(resolve,reject){
var cancel={value:reject},end={value:function(){--size===0&&resolve()}};that.each(function(){var schedule2=set2(this,id2),on=schedule2.on;on!==on0&&(on1=(on0=on).
copy(),on1._.cancel.push(cancel),on1._.interrupt.push(cancel),on1._.end.push(end)),schedule2.on=on1}),size===0&&resolve()})}var id=0;function Transition(groups,parents,name,id2){
this._groups=groups,this._parents=parents,this._name=name,this._id=id2}function transition(name){return selection().transition(name)}function newId(){return++id}
var selection_prototype=selection.prototype;Transition.prototype=transition.prototype={constructor:Transition,select:transition_select,selectAll:transition_selectAll,
selectChild:selection_prototype.selectChild,selectChildren:selection_prototype.selectChildren,filter:transition_filter,merge:transition_merge,selection:transition_selection,
transition:transition_transition,call:selection_prototype.call,nodes:selection_prototype.nodes,node:selection_prototype.node,size:selection_prototype.size,empty:selection_prototype.
empty,each:selection_prototype.each,on:transition_on,attr:transition_attr,attrTween:transition_attrTween,style:transition_style,styleTween:transition_styleTween,
text:transition_text,textTween:transition_textTween,remove:transition_remove,tween:transition_tween,delay:transition_delay,duration:transition_duration,ease:transition_ease,
easeVarying:transition_easeVarying,end:transition_end,[Symbol.iterator]:selection_prototype[Symbol.iterator]};var defaultTiming={time:null,delay:0,duration:250,
ease:cubicInOut};function inherit(node,id2){for(var timing;!(timing=node.__transition)||!(timing=timing[id2]);)if(!(node=node.parentNode))throw new Error(`trans\
ition ${id2} not found`);return timing}function selection_transition(name){var id2,timing;name instanceof Transition?(id2=name._id,name=name._name):(id2=newId(),
(timing=defaultTiming).time=now(),name=name==null?null:name+"");for(var groups=this._groups,m2=groups.length,j2=0;j2<m2;++j2)for(var group=groups[j2],n2=group.length,
node,i2=0;i2<n2;++i2)(node=group[i2])&&schedule(node,name,id2,i2,group,timing||inherit(node,id2));return new Transition(groups,this._parents,name,id2)}selection.
prototype.interrupt=selection_interrupt;selection.prototype.transition=selection_transition;var constant3=x2=>()=>x2;function ZoomEvent(type,{sourceEvent:sourceEvent2,target,transform:transform2,dispatch:dispatch2}){Object.defineProperties(this,{type:{
value:type,enumerable:!0,configurable:!0},sourceEvent:{value:sourceEvent2,enumerable:!0,configurable:!0},target:{value:target,enumerable:!0,configurable:!0},transform:{
value:transform2,enumerable:!0,configurable:!0},_:{value:dispatch2}})}function Transform(k,x2,y2){this.k=k,this.x=x2,this.y=y2}Transform.prototype={constructor:Transform,
scale:function(k){return k===1?this:new Transform(this.k*k,this.x,this.y)},translate:function(x2,y2){return x2===0&y2===0?this:new Transform(this.k,this.x+this.
k*x2,this.y+this.k*y2)},apply:function(point){return[point[0]*this.k+this.x,point[1]*this.k+this.y]},applyX:function(x2){return x2*this.k+this.x},applyY:function(y2){
return y2*this.k+this.y},invert:function(location2){return[(location2[0]-this.x)/this.k,(location2[1]-this.y)/this.k]},invertX:function(x2){return(x2-this.x)/this.
k},invertY:function(y2){return(y2-this.y)/this.k},rescaleX:function(x2){return x2.copy().domain(x2.range().map(this.invertX,this).map(x2.invert,x2))},rescaleY:function(y2){
return y2.copy().domain(y2.range().map(this.invertY,this).map(y2.invert,y2))},toString:function(){return"translate("+this.x+","+this.y+") scale("+this.k+")"}};var identity2=new Transform(
1,0,0);transform.prototype=Transform.prototype;function transform(node){for(;!node.__zoom;)if(!(node=node.parentNode))return identity2;return node.__zoom}function nopropagation(event){
event.stopImmediatePropagation()}function noevent2(event){event.preventDefault(),event.stopImmediatePropagation()}function defaultFilter(event){return(!event.ctrlKey||
event.type==="wheel")&&!event.button}function defaultExtent(){var e2=this;return e2 instanceof SVGElement?(e2=e2.ownerSVGElement||e2,e2.hasAttribute("viewBox")?
(e2=e2.viewBox.baseVal,[[e2.x,e2.y],[e2.x+e2.width,e2.y+e2.height]]):[[0,0],[e2.width.baseVal.value,e2.height.baseVal.value]]):[[0,0],[e2.clientWidth,e2.clientHeight]]}
function defaultTransform(){return this.__zoom||identity2}function defaultWheelDelta(event){return-event.deltaY*(event.deltaMode===1?.05:event.deltaMode?1:.002)*
(event.ctrlKey?10:1)}function defaultTouchable(){return navigator.maxTouchPoints||"ontouchstart"in this}function defaultConstrain(transform2,extent,translateExtent){
var dx0=transform2.invertX(extent[0][0])-translateExtent[0][0],dx1=transform2.invertX(extent[1][0])-translateExtent[1][0],dy0=transform2.invertY(extent[0][1])-translateExtent[0][1],
dy1=transform2.invertY(extent[1][1])-translateExtent[1][1];return transform2.translate(dx1>dx0?(dx0+dx1)/2:Math.min(0,dx0)||Math.max(0,dx1),dy1>dy0?(dy0+dy1)/2:
Math.min(0,dy0)||Math.max(0,dy1))}function zoom2(){var filter2=defaultFilter,extent=defaultExtent,constrain=defaultConstrain,wheelDelta=defaultWheelDelta,touchable=defaultTouchable,
scaleExtent=[0,1/0],translateExtent=[[-1/0,-1/0],[1/0,1/0]],duration=250,interpolate2=zoom,listeners=dispatch("start","zoom","end"),touchstarting,touchfirst,touchending,
touchDelay=500,wheelDelay=150,clickDistance2=0,tapDistance=10;function zoom3(selection2){selection2.property("__zoom",defaultTransform).on("wheel.zoom",wheeled,
{passive:!1}).on("mousedown.zoom",mousedowned).on("dblclick.zoom",dblclicked).filter(touchable).on("touchstart.zoom",touchstarted).on("touchmove.zoom",touchmoved).
on("touchend.zoom touchcancel.zoom",touchended).style("-webkit-tap-highlight-color","rgba(0,0,0,0)")}zoom3.transform=function(collection,transform2,point,event){
var selection2=collection.selection?collection.selection():collection;selection2.property("__zoom",defaultTransform),collection!==selection2?schedule2(collection,
transform2,point,event):selection2.interrupt().each(function(){gesture(this,arguments).event(event).start().zoom(null,typeof transform2=="function"?transform2.apply(
this,arguments):transform2).end()})},zoom3.scaleBy=function(selection2,k,p2,event){zoom3.scaleTo(selection2,function(){var k0=this.__zoom.k,k1=typeof k=="functi\
on"?k.apply(this,arguments):k;return k0*k1},p2,event)},zoom3.scaleTo=function(selection2,k,p2,event){zoom3.transform(selection2,function(){var e2=extent.apply(this,
arguments),t02=this.__zoom,p0=p2==null?centroid(e2):typeof p2=="function"?p2.apply(this,arguments):p2,p1=t02.invert(p0),k1=typeof k=="function"?k.apply(this,arguments):
k;return constrain(translate(scale(t02,k1),p0,p1),e2,translateExtent)},p2,event)},zoom3.translateBy=function(selection2,x2,y2,event){zoom3.transform(selection2,
function(){return constrain(this.__zoom.translate(typeof x2=="function"?x2.apply(this,arguments):x2,typeof y2=="function"?y2.apply(this,arguments):y2),extent.apply(
this,arguments),translateExtent)},null,event)},zoom3.translateTo=function(selection2,x2,y2,p2,event){zoom3.transform(selection2,function(){var e2=extent.apply(this,
arguments),t4=this.__zoom,p0=p2==null?centroid(e2):typeof p2=="function"?p2.apply(this,arguments):p2;return constrain(identity2.translate(p0[0],p0[1]).scale(t4.
k).translate(typeof x2=="function"?-x2.apply(this,arguments):-x2,typeof y2=="function"?-y2.apply(this,arguments):-y2),e2,translateExtent)},p2,event)};function scale(transform2,k){
return k=Math.max(scaleExtent[0],Math.min(scaleExtent[1],k)),k===transform2.k?transform2:new Transform(k,transform2.x,transform2.y)}function translate(transform2,p0,p1){
var x2=p0[0]-p1[0]*transform2.k,y2=p0[1]-p1[1]*transform2.k;return x2===transform2.x&&y2===transform2.y?transform2:new Transform(transform2.k,x2,y2)}function centroid(extent2){
return[(+extent2[0][0]+ +extent2[1][0])/2,(+extent2[0][1]+ +extent2[1][1])/2]}function schedule2(transition2,transform2,point,event){transition2.on("start.zoom",
function(){gesture(this,arguments).event(event).start()}).on("interrupt.zoom end.zoom",function(){gesture(this,arguments).event(event).end()}).tween("zoom",function(){
var that=this,args=arguments,g2=gesture(that,args).event(event),e2=extent.apply(that,args),p2=point==null?centroid(e2):typeof point=="function"?point.apply(that,
args):point,w2=Math.max(e2[1][0]-e2[0][0],e2[1][1]-e2[0][1]),a3=that.__zoom,b=typeof transform2=="function"?transform2.apply(that,args):transform2,i2=interpolate2(
a3.invert(p2).concat(w2/a3.k),b.invert(p2).concat(w2/b.k));return function(t4){if(t4===1)t4=b;else{var l2=i2(t4),k=w2/l2[2];t4=new Transform(k,p2[0]-l2[0]*k,p2[1]-
l2[1]*k)}g2.zoom(null,t4)}})}function gesture(that,args,clean2){return!clean2&&that.__zooming||new Gesture(that,args)}function Gesture(that,args){this.that=that,
this.args=args,this.active=0,this.sourceEvent=null,this.extent=extent.apply(that,args),this.taps=0}Gesture.prototype={event:function(event){return event&&(this.
sourceEvent=event),this},start:function(){return++this.active===1&&(this.that.__zooming=this,this.emit("start")),this},zoom:function(key,transform2){return this.
mouse&&key!=="mouse"&&(this.mouse[1]=transform2.invert(this.mouse[0])),this.touch0&&key!=="touch"&&(this.touch0[1]=transform2.invert(this.touch0[0])),this.touch1&&
key!=="touch"&&(this.touch1[1]=transform2.invert(this.touch1[0])),this.that.__zoom=transform2,this.emit("zoom"),this},end:function(){return--this.active===0&&(delete this.
that.__zooming,this.emit("end")),this},emit:function(type){var d2=select(this.that).datum();listeners.call(type,this.that,new ZoomEvent(type,{sourceEvent:this.sourceEvent,
target:zoom3,transform:this.that.__zoom,dispatch:listeners}),d2)}};function wheeled(event,...args){if(!filter2.apply(this,arguments))return;var g2=gesture(this,
args).event(event),t4=this.__zoom,k=Math.max(scaleExtent[0],Math.min(scaleExtent[1],t4.k*Math.pow(2,wheelDelta.apply(this,arguments)))),p2=pointer(event);if(g2.
wheel)(g2.mouse[0][0]!==p2[0]||g2.mouse[0][1]!==p2[1])&&(g2.mouse[1]=t4.invert(g2.mouse[0]=p2)),clearTimeout(g2.wheel);else{if(t4.k===k)return;g2.mouse=[p2,t4.invert(
p2)],interrupt(this),g2.start()}noevent2(event),g2.wheel=setTimeout(wheelidled,wheelDelay),g2.zoom("mouse",constrain(translate(scale(t4,k),g2.mouse[0],g2.mouse[1]),
g2.extent,translateExtent));function wheelidled(){g2.wheel=null,g2.end()}}function mousedowned(event,...args){if(touchending||!filter2.apply(this,arguments))return;
var currentTarget=event.currentTarget,g2=gesture(this,args,!0).event(event),v2=select(event.view).on("mousemove.zoom",mousemoved,!0).on("mouseup.zoom",mouseupped,
!0),p2=pointer(event,currentTarget),x0=event.clientX,y0=event.clientY;nodrag(event.view),nopropagation(event),g2.mouse=[p2,this.__zoom.invert(p2)],interrupt(this),
g2.start();function mousemoved(event2){if(noevent2(event2),!g2.moved){var dx=event2.clientX-x0,dy=event2.clientY-y0;g2.moved=dx*dx+dy*dy>clickDistance2}g2.event(
event2).zoom("mouse",constrain(translate(g2.that.__zoom,g2.mouse[0]=pointer(event2,currentTarget),g2.mouse[1]),g2.extent,translateExtent))}function mouseupped(event2){
v2.on("mousemove.zoom mouseup.zoom",null),yesdrag(event2.view,g2.moved),noevent2(event2),g2.event(event2).end()}}function dblclicked(event,...args){if(filter2.apply(
this,arguments)){var t02=this.__zoom,p0=pointer(event.changedTouches?event.changedTouches[0]:event,this),p1=t02.invert(p0),k1=t02.k*(event.shiftKey?.5:2),t12=constrain(
translate(scale(t02,k1),p0,p1),extent.apply(this,args),translateExtent);noevent2(event),duration>0?select(this).transition().duration(duration).call(schedule2,t12,
p0,event):select(this).call(zoom3.transform,t12,p0,event)}}function touchstarted(event,...args){if(filter2.apply(this,arguments)){var touches=event.touches,n2=touches.
length,g2=gesture(this,args,event.changedTouches.length===n2).event(event),started,i2,t4,p2;for(nopropagation(event),i2=0;i2<n2;++i2)t4=touches[i2],p2=pointer(t4,
this),p2=[p2,this.__zoom.invert(p2),t4.identifier],g2.touch0?!g2.touch1&&g2.touch0[2]!==p2[2]&&(g2.touch1=p2,g2.taps=0):(g2.touch0=p2,started=!0,g2.taps=1+!!touchstarting);
touchstarting&&(touchstarting=clearTimeout(touchstarting)),started&&(g2.taps<2&&(touchfirst=p2[0],touchstarting=setTimeout(function(){touchstarting=null},touchDelay)),
interrupt(this),g2.start())}}function touchmoved(event,...args){if(this.__zooming){var g2=gesture(this,args).event(event),touches=event.changedTouches,n2=touches.
length,i2,t4,p2,l2;for(noevent2(event),i2=0;i2<n2;++i2)t4=touches[i2],p2=pointer(t4,this),g2.touch0&&g2.touch0[2]===t4.identifier?g2.touch0[0]=p2:g2.touch1&&g2.
touch1[2]===t4.identifier&&(g2.touch1[0]=p2);if(t4=g2.that.__zoom,g2.touch1){var p0=g2.touch0[0],l0=g2.touch0[1],p1=g2.touch1[0],l1=g2.touch1[1],dp=(dp=p1[0]-p0[0])*
dp+(dp=p1[1]-p0[1])*dp,dl=(dl=l1[0]-l0[0])*dl+(dl=l1[1]-l0[1])*dl;t4=scale(t4,Math.sqrt(dp/dl)),p2=[(p0[0]+p1[0])/2,(p0[1]+p1[1])/2],l2=[(l0[0]+l1[0])/2,(l0[1]+
l1[1])/2]}else if(g2.touch0)p2=g2.touch0[0],l2=g2.touch0[1];else return;g2.zoom("touch",constrain(translate(t4,p2,l2),g2.extent,translateExtent))}}function touchended(event,...args){
if(this.__zooming){var g2=gesture(this,args).event(event),touches=event.changedTouches,n2=touches.length,i2,t4;for(nopropagation(event),touchending&&clearTimeout(
touchending),touchending=setTimeout(function(){touchending=null},touchDelay),i2=0;i2<n2;++i2)t4=touches[i2],g2.touch0&&g2.touch0[2]===t4.identifier?delete g2.touch0:
g2.touch1&&g2.touch1[2]===t4.identifier&&delete g2.touch1;if(g2.touch1&&!g2.touch0&&(g2.touch0=g2.touch1,delete g2.touch1),g2.touch0)g2.touch0[1]=this.__zoom.invert(
g2.touch0[0]);else if(g2.end(),g2.taps===2&&(t4=pointer(t4,this),Math.hypot(touchfirst[0]-t4[0],touchfirst[1]-t4[1])<tapDistance)){var p2=select(this).on("dblcl\
ick.zoom");p2&&p2.apply(this,arguments)}}}return zoom3.wheelDelta=function(_2){return arguments.length?(wheelDelta=typeof _2=="function"?_2:constant3(+_2),zoom3):
wheelDelta},zoom3.filter=function(_2){return arguments.length?(filter2=typeof _2=="function"?_2:constant3(!!_2),zoom3):filter2},zoom3.touchable=function(_2){return arguments.
length?(touchable=typeof _2=="function"?_2:constant3(!!_2),zoom3):touchable},zoom3.extent=function(_2){return arguments.length?(extent=typeof _2=="function"?_2:
constant3([[+_2[0][0],+_2[0][1]],[+_2[1][0],+_2[1][1]]]),zoom3):extent},zoom3.scaleExtent=function(_2){return arguments.length?(scaleExtent[0]=+_2[0],scaleExtent[1]=
+_2[1],zoom3):[scaleExtent[0],scaleExtent[1]]},zoom3.translateExtent=function(_2){return arguments.length?(translateExtent[0][0]=+_2[0][0],translateExtent[1][0]=
+_2[1][0],translateExtent[0][1]=+_2[0][1],translateExtent[1][1]=+_2[1][1],zoom3):[[translateExtent[0][0],translateExtent[0][1]],[translateExtent[1][0],translateExtent[1][1]]]},
zoom3.constrain=function(_2){return arguments.length?(constrain=_2,zoom3):constrain},zoom3.duration=function(_2){return arguments.length?(duration=+_2,zoom3):duration},
zoom3.interpolate=function(_2){return arguments.length?(interpolate2=_2,zoom3):interpolate2},zoom3.on=function(){var value=listeners.on.apply(listeners,arguments);
return value===listeners?zoom3:value},zoom3.clickDistance=function(_2){return arguments.length?(clickDistance2=(_2=+_2)*_2,zoom3):Math.sqrt(clickDistance2)},zoom3.
tapDistance=function(_2){return arguments.length?(tapDistance=+_2,zoom3):tapDistance},zoom3}var grade=scale=>Math.round(Math.log(scale)/Math.log(1.25)),Picture=class _Picture extends x{state={window:null};svg=M();world=M();zooming;transform=identity2;drawn=null;lastFold=null;measured=[
1,1];watcher=new ResizeObserver(()=>this.resized());componentDidMount(){this.props.mounted(this);let svg=this.svg.current;this.zooming=zoom2().scaleExtent([.015,
4]).filter(event=>event.type==="wheel"?event.ctrlKey||event.metaKey:!event.button).on("zoom",event=>{this.transform=event.transform,this.world.current.setAttribute(
"transform",event.transform.toString()),this.lookAround()}),select(svg).call(this.zooming).on("dblclick.zoom",null),svg.addEventListener("wheel",event=>{if(event.
ctrlKey||event.metaKey)return;event.preventDefault();let unit=event.deltaMode?16:1,[dx,dy]=event.shiftKey?[event.deltaY,0]:[event.deltaX,event.deltaY];this.moveBy(
-dx*unit/this.transform.k,-dy*unit/this.transform.k)},{passive:!1}),this.watcher.observe(svg),this.resized(),this.fit()}componentWillUnmount(){this.watcher.disconnect()}componentDidUpdate(before){
if(before.model!==this.props.model)this.fit();else if(before.scene!==this.props.scene){let anchor=this.lastFold&&[before.scene,this.props.scene].map(scene=>scene.
byUnit.get(-this.lastFold.frame-1));anchor?.[0]&&anchor[1]&&this.moveBy(anchor[0].mid-anchor[1].mid,anchor[0].y-anchor[1].y),this.lookAround()}}size(){return this.
measured}resized(){let{clientWidth,clientHeight}=this.svg.current;this.measured=[Math.max(1,clientWidth),Math.max(1,clientHeight)],this.lookAround()}moveBy(x2,y2){
(x2||y2)&&this.zooming.translateBy(select(this.svg.current),x2,y2)}scaleBy(factor){this.zooming.scaleBy(select(this.svg.current),factor)}fit(){let{left,right,height}=this.
props.scene,[wide,high]=this.size(),room=34,across2=(wide-2*room)/(right-left),down=(high-2*room)/height,scale=Math.max(Math.min(across2,down,1.15),Math.min(across2,
.85),.02),x2=wide/2-(left+right)/2*scale,y2=height*scale<high-2*room?(high-height*scale)/2:room;this.zooming.transform(select(this.svg.current),identity2.translate(
x2,y2).scale(scale))}fitAll(){let{left,right,height}=this.props.scene,[wide,high]=this.size(),scale=Math.min((wide-40)/(right-left),(high-40)/height,1.15),[x2,y2]=[
wide/2-(left+right)/2*scale,high/2-height/2*scale];this.zooming.transform(select(this.svg.current),identity2.translate(x2,y2).scale(scale))}show(unit){let box=this.
props.scene.byUnit.get(unit);if(!box)return;let[wide,high]=this.size(),{k}=this.transform,[x2,y2]=this.transform.apply([box.mid,box.y]);if(x2>60&&x2<wide-60&&y2>
30&&y2+Math.min(box.h*k,high/2)<high-20&&k>=.45)return;let scale=Math.max(k,.8),middle=box.y+Math.min(box.h,high/scale)/2;this.zooming.transform(select(this.svg.
current),identity2.translate(wide/2-box.mid*scale,high/2-middle*scale).scale(scale))}lookAround(){let[wide,high]=this.size(),{k}=this.transform,[x2,y2]=this.transform.
invert([0,0]),had=this.state.window,[w2,h2]=[wide/k,high/k];had&&had.grade===grade(k)&&x2>=had.x&&y2>=had.y&&x2+w2<=had.x+had.w&&y2+h2<=had.y+had.h||this.setState(
{window:{x:x2-w2/2,y:y2-h2/2,w:2*w2,h:2*h2,grade:grade(k)}})}static within(scene,window2){let scale=1.25**window2.grade,small=1.2/scale,{x:x2,y:y2,w:w2,h:h2}=window2,
touches=(left,top,wide,high)=>left<x2+w2&&top<y2+h2&&left+wide>x2&&top+high>y2,boxes=scene.boxes.filter(box=>box.h>small&&touches(box.x-120,box.y,box.w+240,box.
h)),lines=new Map;if(scale>.06)for(let line of scene.lines){let[left,top,wide,high]=line.box;if(!touches(left-20,top,wide+40,high))continue;let own=lines.get(line.
within);own?own.push(line):lines.set(line.within,[line])}return{boxes,lines}}visible(){let[wide,high]=this.size(),{k}=this.transform,[x2,y2]=this.transform.invert(
[0,0]),window2={x:x2,y:y2,w:wide/k,h:high/k,grade:grade(k)},{model,opened,scene,marks}=this.props;return{...window2,node:a2(Drawn,{model,opened,marks,..._Picture.
within(scene,window2),detail:detailAt(1.25**window2.grade)})}}base(window2){let{model,opened,scene,marks}=this.props,key=[model,scene,marks.matches,window2];if(this.
drawn?.key.every((part,at)=>part===key[at]))return this.drawn.node;let node=a2(Drawn,{model,opened,marks,..._Picture.within(scene,window2),detail:detailAt(1.25**
window2.grade)});return this.drawn={key,node},node}overlay(lit,window2){let{model,opened,scene,marks}=this.props,detail=detailAt(1.25**window2.grade),boxes=[...lit.
units].map(([unit,role])=>[scene.byUnit.get(unit),role]),bridges=line=>+(line.side!=="bridge");return a2("g",{class:"overlay",children:[[...lit.lines].sort((a3,b)=>bridges(
a3)-bridges(b)).map(line=>a2(LineShape,{line,detail,bright:!0},line.d)),boxes.map(([box,role])=>box&&(box.kind==="open"?a2("rect",{class:"ring",x:box.x,y:box.y,
width:box.w,height:box.h,rx:8},box.unit):a2(BoxShape,{model,opened,box,detail,marks,role:`is-${role}`},box.unit)))]})}at(event){let target=event.target,number2=name=>{
let found=target.closest(`[data-${name}]`)?.getAttribute(`data-${name}`);return found==null?null:Number(found)},loop=number2("loop");return{unit:number2("unit"),
fold:number2("fold"),turn:loop===null?null:[loop,number2("turn")]}}clicked=event=>{let{unit,fold,turn}=this.at(event),{scene}=this.props;if(event.detail>1)return;
if(this.lastFold=null,turn)return this.props.onTurn(...turn);let folded=unit!==null&&scene.byUnit.get(unit)?.kind==="folded"?-unit-1:fold;if(folded===null)return this.
props.onClick(unit);this.lastFold={frame:folded,when:event.timeStamp},this.props.onFold(folded)};doubled=event=>{this.lastFold&&event.timeStamp-this.lastFold.when<
700&&this.props.onOpenAll(this.lastFold.frame)};hold(frame2){this.lastFold?.frame!==frame2&&(this.lastFold={frame:frame2,when:-1/0})}render({scene,lit,pinned,onHover}){
let window2=this.state.window;return a2("svg",{ref:this.svg,class:`picture${pinned?" pinned":""}`,tabindex:0,role:"application","aria-label":"forward and backwa\
rd","data-boxes":scene.boxes.length,onClick:this.clicked,onDblClick:this.doubled,onMouseOver:event=>onHover(this.at(event).unit),onMouseLeave:()=>onHover(null),
children:[a2(Tips,{}),a2("g",{ref:this.world,children:[a2("g",{class:"base",children:window2&&this.base(window2)}),window2&&lit&&this.overlay(lit,window2)]})]})}};function costsBy(model,key){let found=new Map,{product,other,read,written}=model.data.nodes;for(let node=0;node<model.count;node++){let name=key(node),side=model.
isForward(node)?0:1,cost=found.get(name)??{name,steps:[0,0],flops:[0,0],bytes:[0,0]};found.set(name,cost),cost.steps[side]++,cost.flops[side]+=product[node]+other[node],
cost.bytes[side]+=read[node]+written[node]}return[...found.values()]}var memo=new WeakMap;function Operators({model,search}){let known=memo.get(model)??{kinds:costsBy(
model,node=>model.kinds[node]),operators:costsBy(model,node=>model.shorts[node])};memo.set(model,known);let all=sums(known.kinds);return a2("div",{class:"panel",
children:[a2("h2",{children:"Operators"}),a2("p",{class:"soft",children:`Forward ${flops(all.flops[0])}FLOP, ${bytes(all.bytes[0])} read and written. Backward ${flops(
all.flops[1])}FLOP, ${bytes(all.bytes[1])}.`}),a2(CostTable,{title:"kind",prefix:"kind:",rows:known.kinds,search}),a2(CostTable,{title:"operator",prefix:"op:",rows:known.
operators,search})]})}function sums(costs){let add=part=>[0,1].map(side=>costs.reduce((sum,cost)=>sum+cost[part][side],0));return{name:"",steps:add("steps"),flops:add(
"flops"),bytes:add("bytes")}}function CostTable({title,prefix,rows,search}){let most=part=>Math.max(1,...rows.flatMap(row2=>row2[part])),bars=(part,said2)=>{let top=most(
part);return row2=>a2("span",{class:"pair",children:[a2("span",{children:[a2(Bar,{share:row2[part][0]/top,side:"forward"}),said2(row2[part][0])]}),a2("span",{children:[
a2(Bar,{share:row2[part][1]/top,side:"backward"}),said2(row2[part][1])]})]})},columns=[{name:title,value:row2=>row2.name,cell:row2=>a2("button",{class:"link",onClick:()=>search(
`${prefix}${row2.name}`),children:a2("bdi",{children:row2.name})})},{name:"steps",value:row2=>row2.steps[0]+row2.steps[1],cell:row2=>a2("span",{class:"pair",children:[
a2("span",{children:whole(row2.steps[0])}),a2("span",{children:whole(row2.steps[1])})]})},{name:"FLOPs",value:row2=>row2.flops[0]+row2.flops[1],cell:bars("flops",
flops)},{name:"bytes",value:row2=>row2.bytes[0]+row2.bytes[1],cell:bars("bytes",bytes)}];return a2(Table,{columns,rows,sort:[2,-1],empty:"There is no step."})}function savedByLine(model){
let found=new Map,{nodes,sources,saved}=model.data;for(let[value,,,fresh]of saved){let source=value<model.count?sources[nodes.source[value]]:void 0,line=value>=
model.count?"inputs and parameters":model.lineOf(value)||"no source line",row2=found.get(line)??{line,code:source?model.text(source[3]):"",bytes:0,values:[]};found.
set(line,row2),row2.bytes+=fresh,row2.values.push(value)}return[...found.values()]}function Lines({model,go,search}){let rows=savedByLine(model),all=rows.reduce(
(sum,row2)=>sum+row2.bytes,0),most=Math.max(1,...rows.map(row2=>row2.bytes)),columns=[{name:"source line",value:row2=>row2.line,cell:row2=>a2("span",{children:[
row2.line.includes(":")?a2("button",{class:"link",title:row2.line,onClick:()=>search(`line:${row2.line}`),children:a2("bdi",{children:row2.line.split("/").at(-1)})}):
row2.line,a2("code",{class:"soft",children:a2("bdi",{children:row2.code})})]})},{name:"saved",value:row2=>row2.bytes,cell:row2=>a2("span",{children:[a2(Bar,{share:row2.
bytes/most,side:"saved"})," ",bytes(row2.bytes)]})},{name:"values",value:row2=>row2.values.length,cell:row2=>a2("span",{children:[whole(row2.values.length)," ",
a2(StepLink,{model,value:row2.values[0],go})]})}];return a2("div",{class:"panel",children:[a2("h2",{children:"Saved, by source line"}),a2("p",{class:"soft",children:`${bytes(
all)} that the caller does not hold anyway. A value that shares memory with another counts once.`}),a2(Table,{columns,rows,sort:[1,-1],empty:"Nothing is saved."})]})}
function Values({model,go}){let gradients=new Map;for(let port of model.data.ports)!port.into&&port.role==="gradient"&&gradients.set(port.value,model.text(port.
name));let{value,rows}=model.data.stats,all=value.map((id2,at)=>({value:id2,gradient:gradients.get(id2)??"",row:rows[at]})),column=(name,at)=>({name,value:row2=>row2.
row[at]??NaN,cell:row2=>a2("span",{class:(at===6||at===7)&&row2.row[at]?"alarm":"",children:real(row2.row[at])})}),columns=[{name:"value",value:row2=>row2.gradient||
model.nameOf(row2.value),cell:row2=>a2("span",{children:[row2.gradient&&a2("span",{class:"tag",children:["gradient of ",a2("bdi",{children:row2.gradient})]}),a2(
StepLink,{model,value:row2.value,go})]})},column("NaN",6),column("Inf",7),column("norm",5),column("mean",3),column("std",4),column("min",1),column("max",2),column(
"zeros",8),column("count",0)],bad=all.filter(one2=>one2.row[6]||one2.row[7]).length,own=all.filter(one2=>one2.gradient),rest=all.filter(one2=>!one2.gradient);return a2(
"div",{class:"panel",children:[a2("h2",{children:"Values"}),a2("p",{class:bad?"alarm":"soft",children:bad?`${whole(bad)} of ${whole(all.length)} measured values\
 have NaN or Inf.`:`No NaN and no Inf in ${whole(all.length)} measured values.`}),own.length>0&&a2("h3",{children:"Gradients"}),own.length>0&&a2(Table,{columns,
rows:own,sort:[bad?1:3,-1],empty:""}),a2("h3",{children:"Other values"}),a2(Table,{columns,rows:rest,sort:[bad?1:3,-1],empty:"No other value was measured."})]})}
function Ports({model,go}){let groups=new Map;for(let port of model.data.ports)listed(groups,`${port.side?"Backward":"Forward"} ${port.into?"takes":"gives"}: ${port.
role}`).push(port);let columns=[{name:"name",value:port=>model.text(port.name),cell:port=>a2("bdi",{children:model.text(port.name)})},{name:"type",value:port=>model.
text(port.spec),cell:port=>a2("code",{children:model.text(port.spec)})},{name:"bytes",value:port=>port.bytes,cell:port=>bytes(port.bytes)},{name:"step",value:port=>port.
into?model.usersOf(port.value)[0]??-1:port.value,cell:port=>{let step=port.into?model.usersOf(port.value)[0]:port.value;return step===void 0?a2("span",{class:"s\
oft",children:"unused"}):a2(StepLink,{model,value:step,go})}}];return a2("div",{class:"panel",children:[a2("h2",{children:"Inputs and outputs"}),[...groups].map(
([title,ports])=>a2("details",{open:ports.length<=12,children:[a2("summary",{children:[title," ",a2("span",{class:"soft",children:[whole(ports.length),", ",bytes(
ports.reduce((sum,port)=>sum+port.bytes,0))]})]}),a2(Table,{columns,rows:ports,sort:[2,-1],empty:""})]},title))]})}var TABS=[["details","Details","d"],["code","Code","c"],["memory","Memory","m"],["lines","Lines","l"],["operators","Operators","o"],["values","Values","v"],["po\
rts","In/out","i"]],App=class extends x{picture;finder;searchers=new Map;keep=new Map;timer=0;marking=0;state={...this.begin(location.hash),hovered:null,query:"",
found:null,marked:null,at:-1,moment:null,tab:"details",help:!1,told:"",wide:430};begin(hash){let{models}=this.props,{pair,unit,opened}=spotOf(hash,models),model=models[pair],
start3=opened??firstOpen(model);return{pair,selected:unit,opened:unit===null||opened?start3:revealed(model,start3,unit)}}get model(){return this.props.models[this.
state.pair]}get scene(){return this.kept("scene",[this.model,this.state.opened],()=>place(this.model,this.state.opened))}get searcher(){let{model}=this;return this.
searchers.has(model)||this.searchers.set(model,new Searcher(model)),this.searchers.get(model)}kept(name,key,make){let had=this.keep.get(name);if(had&&had.key.length===
key.length&&had.key.every((part,at)=>part===key[at]))return had.value;let value=make();return this.keep.set(name,{key,value}),value}componentDidMount(){document.
addEventListener("keydown",this.pressed),addEventListener("hashchange",this.followed),setTimeout(()=>this.searcher,300),this.state.selected!==null&&this.picture.
show(this.visible(this.state.selected))}componentWillUnmount(){document.removeEventListener("keydown",this.pressed),removeEventListener("hashchange",this.followed)}componentDidUpdate(_2,before){
let{pair,selected,opened}=this.state;before.pair===pair&&before.selected===selected&&before.opened===opened||(clearTimeout(this.timer),location.protocol!=="abou\
t:"&&(this.timer=window.setTimeout(()=>history.replaceState(null,"",hashOf(pair,selected,opened)),250)))}followed=()=>{let begun=this.begin(location.hash);this.
setState(begun,()=>begun.selected!==null&&this.picture.show(this.visible(begun.selected)))};visible(unit){return visibleOf(this.model,this.scene,unit)}go=unit=>{
let opened=this.scene.byUnit.has(unit)?this.state.opened:revealed(this.model,this.state.opened,unit);this.setState({opened,selected:unit,hovered:null,...this.momentOf(
unit)},()=>this.picture.show(this.visible(unit)))};momentOf(unit){return unit!==null&&unit>=0&&this.state.tab!=="memory"?{moment:null}:{}}select=unit=>this.setState(
{selected:unit===frameUnit(0)?null:unit,told:""});fold=frame2=>{this.picture.hold(frame2);let opened=toggled(this.model,this.state.opened,frame2),inside=this.state.
selected,hidden=inside!==null&&!isOpen(this.model,opened,frame2)&&this.model.above(inside).includes(frame2);this.setState({opened,selected:frame2===0?this.state.
selected:hidden||inside===null||inside<0?frameUnit(frame2):inside})};openAll=frame2=>{this.picture.hold(frame2),this.setState({opened:openedInside(this.model,this.
state.opened,frame2),selected:frame2===0?null:frameUnit(frame2)})};turn=(loop,turn)=>{this.picture.hold(loop);let{model}=this,{selected}=this.state,opened=turned(
model,this.state.opened,loop,turn);this.setState({opened,selected:selected!==null&&model.above(selected).includes(loop)?this.sameIn(loop,opened,selected):selected})};sameIn(loop,opened,unit){
let{model}=this,path=[unit,...model.above(unit).map(frameUnit)],end=path.indexOf(frameUnit(loop)),found=model.frame(loop).units[turnOf(model,opened,loop)];for(let part of path.
slice(0,end-1).reverse()){let place3=part<0?model.framePlace[-part-1]:model.place[part],next=found<0?model.frame(-found-1).units[place3]:void 0;if(next===void 0)
return frameUnit(loop);found=next}return found}depth=depth=>this.setState({opened:openedTo(this.model,this.state.opened,depth)},()=>{this.state.selected!==null?
this.picture.show(this.visible(this.state.selected)):this.picture.fit()});search=query=>{let found=this.searcher.find(query);this.setState({query,found,at:-1}),
clearTimeout(this.marking),this.marking=window.setTimeout(()=>this.setState({marked:found}),90)};ask=query=>{this.search(query),this.finder.focus()};goMatch=at=>{
let unit=this.state.found.units[at];this.setState({at}),this.go(unit)};nextMatch(way){let{found,at}=this.state,count=found?.units.length??0;count&&this.goMatch(
at<0?way>0?0:count-1:(at+way+count)%count)}moment=moment=>this.setState({moment,tab:"memory"});exported=()=>{let name=this.props.page.title.replace(/[^\w.-]+/g,
"_").slice(0,60)||"graph";download(`${name}.svg`,svgOf(this.picture,this.props.page.title))};link=()=>{let{pair,selected,opened}=this.state,address=location.href.
replace(/#.*$/,"")+hashOf(pair,selected,opened);copy(address).then(told=>this.setState({told}))};choose=pair=>{let opened=firstOpen(this.props.models[pair]);this.
setState({pair,opened,selected:null,hovered:null,query:"",found:null,marked:null,at:-1,moment:null})};turnAround(way){let{selected,opened}=this.state,loop=(selected===
null?[]:[...selected<0?[-selected-1]:[],...this.model.above(selected)]).find(frame2=>this.model.frame(frame2).kind==="loop")??this.onlyLoop();loop!==void 0&&this.
turn(loop,turnOf(this.model,opened,loop)+way)}onlyLoop(){let loops=this.scene.boxes.filter(box=>box.unit<0&&this.model.frame(-box.unit-1).kind==="loop");return loops.
length?-loops[0].unit-1:void 0}pressed=event=>{let target=event.target;if(event.ctrlKey||event.metaKey||event.altKey||/^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)||
event.key==="Enter"&&target.tagName==="BUTTON"||event.key.startsWith("Arrow")&&target.closest(".code, .side"))return;let act=this.actions(event)[event.key];act&&
(event.preventDefault(),act())};actions(event){let{model,scene}=this,{selected}=this.state,picture=this.picture,move=unit=>unit!==null&&this.go(unit);return{"/":()=>this.
finder.focus(),"?":()=>this.setState({help:!this.state.help}),Escape:()=>this.state.help?this.setState({help:!1}):this.select(null),Enter:()=>{if(selected===null)
return;let id2=selected<0?-selected-1:scene.byUnit.has(selected)?model.above(selected).find(one2=>scene.byUnit.has(frameUnit(one2))):-this.visible(selected)-1;event.
shiftKey?this.openAll(id2):this.fold(id2)},ArrowDown:()=>move(along(model,scene,selected,1)),ArrowUp:()=>move(along(model,scene,selected,-1)),ArrowLeft:()=>move(
across(model,selected,!1)),ArrowRight:()=>move(across(model,selected,!0)),"[":()=>this.turnAround(-1),"]":()=>this.turnAround(1),n:()=>this.nextMatch(1),p:()=>this.
nextMatch(-1),"+":()=>picture.scaleBy(1.3),"=":()=>picture.scaleBy(1.3),"-":()=>picture.scaleBy(1/1.3),f:()=>picture.fit(),a:()=>picture.fitAll(),...Object.fromEntries(
this.tabs().map(([tab,,key])=>[key,()=>this.setState({tab})])),...Object.fromEntries(Array.from({length:10},(_2,depth)=>[String(depth),()=>this.depth(Math.max(1,
depth))]))}}tabs(){let{stats}=this.model.data,without=[!stats&&"values",!this.model.timed&&"memory",!this.model.timed&&"lines"];return TABS.filter(([tab])=>!without.
includes(tab))}lit(){let{model,scene}=this,{selected,hovered}=this.state,unit=hovered??selected;if(unit===null||unit===frameUnit(0)||hovered!==null&&scene.byUnit.
get(hovered)?.kind==="open"&&selected===null)return null;let shown=hovered!==null&&scene.byUnit.get(hovered)?.kind==="open"?selected:unit;return this.kept("lit",
[scene,shown],()=>litBy(model,scene,shown))}panel(){let{model,go}=this,{tab,opened,selected,moment}=this.state,{page}=this.props,lit=tab==="code"?this.lit():null;
return this.kept("panel",[model,tab,opened,selected,moment,lit],()=>tab==="code"?a2(Code,{model,selected,go,lit:lit?.steps??null}):tab==="memory"&&model.timed?a2(
Memory,{model,moment,go,onMoment:this.moment}):tab==="lines"&&model.timed?a2(Lines,{model,go,search:this.ask}):tab==="operators"?a2(Operators,{model,search:this.
ask}):tab==="values"&&model.data.stats?a2(Values,{model,go}):tab==="ports"?a2(Ports,{model,go}):a2(Details,{page,model,opened,selected,go,onFold:this.fold,onOpenAll:this.
openAll,onTurn:this.turn}))}bar(){let{page,models}=this.props,{pair,query,found,at,told}=this.state,{model}=this,depth=depthOf(model,this.state.opened);return a2(
"header",{children:[a2("h1",{title:page.title,children:a2("bdi",{children:page.title})}),models.length>1&&a2("select",{"aria-label":"pairs of graphs",value:pair,
onChange:event=>this.choose(Number(event.currentTarget.value)),children:models.map((one2,index)=>a2("option",{value:index,children:one2.data.name||`pair ${index+
1}`},index))}),a2(Finder,{mounted:finder=>this.finder=finder,model,query,found,at,onQuery:this.search,onGo:this.goMatch,onLeave:()=>this.focusPicture()}),a2("sp\
an",{class:"group",role:"group","aria-label":"depth",children:[a2("button",{title:"close one level",disabled:depth<=1,onClick:()=>this.depth(Math.max(1,depth-1)),
children:"−"}),a2("span",{class:"soft",title:"frames are open to this depth",children:["depth ",depth]}),a2("button",{title:"open one level",disabled:depth>model.
deepest,onClick:()=>this.depth(depth+1),children:"+"})]}),a2("span",{class:"group",children:[a2("button",{title:"the whole picture (a)",onClick:()=>this.picture.
fitAll(),children:"fit"}),a2("button",{title:"copy a link to the selection",onClick:this.link,children:"link"}),a2("button",{title:"save the visible part as an \
SVG file",onClick:this.exported,children:"SVG"}),a2("button",{title:"keys (?)",onClick:()=>this.setState({help:!0}),children:"?"})]}),told&&(told.includes("#")?
a2("input",{class:"told",readOnly:!0,value:told,"aria-label":"link",onFocus:event=>event.currentTarget.select()}):a2("output",{class:"told",children:told}))]})}focusPicture(){
document.querySelector("svg.picture").focus()}caption(){let{model}=this,{hovered,selected}=this.state,unit=hovered??selected;if(unit===null)return"";if(unit<0)return[
model.text(model.frame(-unit-1).name),model.text(model.frame(-unit-1).label)].filter(Boolean).join("  ");let code=model.data.sources[model.data.nodes.source[unit]]?.[3];
return[`${model.nameOf(unit)}: ${model.specOf(unit)} = ${model.call(unit)}`,model.lineOf(unit),code===void 0?"":model.text(code)].filter(Boolean).join("   ")}dragged=event=>{
event.buttons===1&&this.setState({wide:Math.max(240,Math.min(innerWidth-200,innerWidth-event.clientX))})};render(){let{model,scene}=this,{selected,marked,tab,help,
moment,wide,opened}=this.state,marks=this.kept("marks",[marked],()=>({matches:marked?.within??null,steps:marked?.steps??null}));return a2("div",{class:"app",style:{
"--wide":`${wide}px`},children:[this.bar(),a2("main",{children:[a2("div",{class:"stage",children:[a2(Picture,{mounted:picture=>this.picture=picture,model,scene,
opened,marks,lit:this.lit(),pinned:selected!==null&&selected>=0,onClick:this.select,onFold:this.fold,onOpenAll:this.openAll,onTurn:this.turn,onHover:this.hover}),
a2("div",{class:"legend","aria-hidden":"true",children:[a2("span",{class:"forward",children:"forward ↓"}),a2("span",{class:"saved",children:"saved"}),a2("span",
{class:"backward",children:"backward ↑"})]}),a2("div",{class:"caption",children:a2("bdi",{children:this.caption()})})]}),a2("div",{class:"grip",onPointerDown:event=>event.
currentTarget.setPointerCapture(event.pointerId),onPointerMove:this.dragged}),a2("section",{class:"side",children:[a2("nav",{role:"tablist",children:this.tabs().
map(([one2,title,key])=>a2("button",{role:"tab","aria-selected":tab===one2,title:`key ${key}`,onClick:()=>this.setState({tab:one2}),children:title},one2))}),this.
panel()]})]}),model.timed&&a2(Timeline,{model,moment,selected,onMoment:this.moment}),help&&a2(Keys,{onClose:()=>this.setState({help:!1})})]})}hover=unit=>{unit!==
this.state.hovered&&this.setState({hovered:unit})}};function Keys({onClose}){return a2("div",{class:"cover",onClick:onClose,children:a2("div",{class:"card",role:"\
dialog","aria-label":"keys",children:[a2("h2",{children:"Keys"}),a2("dl",{children:KEYS.map(([keys,meaning])=>[a2("dt",{children:a2("kbd",{children:keys})},keys),
a2("dd",{children:meaning},`${keys} `)])}),a2("button",{onClick:onClose,children:"close"})]})})}function start2(place3){let page=parse(document.getElementById("data")?.textContent??"");document.title=page.title||document.title,Q(a2(App,{page,models:page.pairs.
map(pair=>new Model(pair))}),place3)}var place2=document.getElementById("app");try{start2(place2)}catch(error){let said2=error instanceof Error?error.message:String(
error);Q(a2("div",{class:"wrong",role:"alert",children:[a2("h1",{children:"This page cannot be drawn"}),a2("p",{children:error instanceof DataError?"Its data ar\
e not whole, or are not what this page reads. The first thing that is wrong:":"Something in the page itself failed:"}),a2("pre",{children:said2}),a2("p",{children:[
"Write the page again: ",a2("code",{children:"backprint view SAMPLE -o page.html"}),"."]})]}),place2)}})();
